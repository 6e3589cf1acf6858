"""The curves of runs: what is read, what is drawn unless it is said, and how a raw line is smoothed."""

import json
import math

import pytest

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.study.plot import chosen, draw_curves, read_curves, smoothed, values


@pytest.fixture
def folder(tmp_path):
    lines = [
        {"kind": "train", "step": 1, "epoch": 0, "loss": 2.0, "learning_rate": 0.1},
        {"kind": "train", "step": 2, "epoch": 0, "loss": None, "learning_rate": 0.2},
        {"kind": "overflowed", "step": 2, "scale": 4.0, "so_far": 1},
        {"kind": "dev", "step": 2, "exact_match": 0.5, "loss": 1.5, "n": 9, "signature": "13a", "best": True},
        {"kind": "dev", "step": 4, "exact_match": 0.25, "loss": 1.0, "n": 9, "signature": "13a", "best": False},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(it) + "\n" for it in lines) + '{"kind": "tr', "utf-8")
    return tmp_path


def test_what_a_run_wrote_down(folder):
    found = read_curves(folder)
    assert found.train["learning_rate"] == [(1, 0.1), (2, 0.2)]
    assert found.train["loss"][0] == (1, 2.0)
    assert math.isnan(found.train["loss"][1][1])
    assert found.dev == {"exact_match": [(2, 0.5), (4, 0.25)], "loss": [(2, 1.5), (4, 1.0)]}
    assert (found.best, found.metrics) == (2, ["loss", "learning_rate", "exact_match"])
    assert values(found, "loss") == [2.0, 1.5, 1.0]


def test_what_is_drawn(folder):
    runs = [read_curves(folder)]
    assert chosen(runs, []) == ["loss", "exact_match"]
    assert chosen(runs, ["learning_rate"]) == ["learning_rate"]
    with pytest.raises(ConfigError, match=r"'learning_rat'.*learning_rate"):
        chosen(runs, ["learning_rat"])


def test_a_run_that_wrote_nothing_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="has no figures"):
        read_curves(tmp_path)


def test_an_even_line_stays_and_a_step_is_followed():
    """The first values are not pulled to 0; a gap is passed over."""
    assert smoothed([(n, 3.0) for n in range(1, 5)], share=0.5) == [(n, pytest.approx(3)) for n in range(1, 5)]
    line = [(1, 0.0), (2, math.nan), (3, 1.0)]
    found = [value for _, value in smoothed(line, share=2 / 3)]  # weight 1/2
    assert found == [0, 0, pytest.approx(0.5 / 0.75)]


def test_the_figure_has_a_panel_for_each_figure_and_a_line_for_each_run(folder):
    pytest.importorskip("matplotlib")
    run = read_curves(folder)
    figure = draw_curves([run, run._replace(name="other")], ["loss", "exact_match"], log=True)
    loss, match = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["loss, nats", "exact match"]
    assert len(loss.lines) == 2 * 4  # raw, smoothed, dev and the best, of each run
    assert (loss.get_yscale(), match.get_yscale(), match.get_xscale()) == ("log", "linear", "log")
    assert list(match.lines[0].get_ydata()) == [0.5, 0.25]
    assert list(match.lines[1].get_xdata()) == [2]
