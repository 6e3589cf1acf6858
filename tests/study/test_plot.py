"""What the pictures show, as values, and the files themselves where matplotlib is installed."""

import importlib
import re
from importlib.util import find_spec

import pytest

from glassformer.base import figures
from glassformer.base.errors import ConfigError
from glassformer.study import plot
from glassformer.study.plot import draw, faceted, lengths, names, summary
from study.examples import grid, result

OTHER = {
    "other_data": {"data.min_length": 17},
    "other": {"exact_match": 0.25, "n": 7, "by_length": {"17": {"exact_match": 0.75}}},
}


def test_first_setting_stands_across_and_the_others_are_series():
    [panel] = summary(grid())
    assert names(grid()) == ["1", "4"]
    assert [*panel.series] == ["norm=layer", "norm=rms"]
    assert panel.series["norm=rms"] == {
        0.0: [pytest.approx(0.11), pytest.approx(0.12)],
        1.0: pytest.approx([0.41, 0.42]),
    }


def test_other_data_and_steps_have_panels_where_there_are_any():
    curve = [(50, 0.5), (100, 1.0)]
    titles = [panel.title for panel in summary(grid(curve=curve, **OTHER))]
    assert titles == ["exact_match on the test split", "exact_match, min_length=17", "steps to 99 % on dev"]


def test_curves_have_a_panel_for_each_of_the_others_and_a_line_for_each_of_the_first():
    panels = faceted(grid(), plot.curve, plot.SHARE)
    assert [panel.title for panel in panels] == ["norm=layer", "norm=rms"]
    assert [*panels[0].series] == ["1", "4"]
    assert [*panels[0].series["1"]] == [50.0, 100.0, 150.0, 200.0]
    assert panels[0].series["4"][200.0] == pytest.approx([0.41, 0.42])


def test_a_colour_is_one_value_in_every_panel():
    """The arms of one layer have failed in the first panel."""
    some = [each for each in grid() if each.values != {"model.n_layers": 1, "model.norm": "layer"}]
    panels = faceted(some, plot.curve, plot.SHARE)
    assert [[*panel.series] for panel in panels] == [["1", "4"]] * 2
    assert {panel.title: not panel.series["1"] for panel in panels} == {"norm=layer": True, "norm=rms": False}
    assert not any(points for panel in faceted(some, lengths, plot.SHARE) for points in panel.series.values())


def test_lengths_are_those_of_both_data():
    assert lengths(grid(**OTHER)[0]) == {2.0: 1.0, 17.0: 0.75}
    assert lengths(grid()[0]) == {}


def test_without_matplotlib_the_remedy_is_told(tmp_path, monkeypatch):
    def missing(name: str):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(figures, "import_module", missing)
    with pytest.raises(ConfigError, match="pip install 'matplotlib>="):
        draw(grid(), tmp_path)
    assert list(tmp_path.iterdir()) == []


needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


@needs_matplotlib
def test_the_legend_has_what_the_first_panel_lacks():
    some = [each for each in grid() if each.values != {"model.n_layers": 1, "model.norm": "layer"}]
    panels = sorted(faceted(some, plot.curve, plot.SHARE), key=lambda panel: panel.title)
    figure = plot.figure_of(panels, "lines", None, "step", "exact_match", "n_layers")
    [legend] = figure.legends
    found = {text.get_text(): it.get_color() for text, it in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert found == {line.get_label(): line.get_color() for line in figure.axes[1].get_lines()}
    assert [*found] == ["1", "4"]


@needs_matplotlib
def test_a_loss_is_drawn_around_its_values_a_share_from_0_to_1_and_a_count_from_0():
    losses = [result({"model.n_layers": n}, 1, test={"loss": 1.3 + n / 100}, metric="loss") for n in (1, 4)]
    [axes] = plot.figure_of(summary(losses), "points", names(losses), "n_layers").axes
    low, high = axes.get_ylim()
    assert 1.3 < low < 1.31
    assert 1.34 < high < 1.35
    results = grid(curve=[(50, 0.5), (100, 1.0)])
    share, count = plot.figure_of(summary(results), "points", names(results), "n_layers").axes
    assert share.get_ylim() == (-0.03, 1.03)
    assert count.get_ylim()[0] == 0


@needs_matplotlib
def test_files(tmp_path):
    written = draw(grid(**OTHER), tmp_path)
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in ("plot", "curves", "lengths") for kind in ("png", "svg")
    }
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    assert "exact_match on the test split" in (tmp_path / "plot.svg").read_text("utf-8")
    assert max(path.stat().st_size for path in written if path.suffix == ".svg") < 100_000


@needs_matplotlib
def test_svg_is_the_same_for_the_same_figures(tmp_path):
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        draw(grid(), tmp_path / name)
        texts.append((tmp_path / name / "plot.svg").read_bytes())
    assert texts[0] == texts[1]
    assert not re.search(rb"<dc:date>", texts[0])


@needs_matplotlib
def test_one_setting_and_one_result_are_enough(tmp_path):
    assert len(draw([result({"model.n_layers": 1}, 1)], tmp_path)) == 4


@needs_matplotlib
def test_more_panels_than_can_be_read_are_left_out(tmp_path):
    many = [result({"a.x": 1, "a.y": number}, 1) for number in range(plot.MOST_PANELS + 1)]
    assert [path.name for path in draw(many, tmp_path)] == ["plot.png", "plot.svg"]


@needs_matplotlib
def test_equal_scores_have_a_bar_of_no_length(tmp_path):
    """The mean of three times 0.998 is a rounding below it."""
    assert draw([result({"model.n_layers": 1}, seed, score=0.998) for seed in (1, 2, 3)], tmp_path)


@pytest.mark.filterwarnings("error")
def test_the_long_names_of_changes_have_room(tmp_path):
    """Else matplotlib gives up the layout, with a warning, and cuts the names off."""
    changes = ["none", *(f"optimizer.name=adamw, training.learning_rate={rate}, {40 * 'x'}" for rate in (0.001, 0.003))]
    found = [result({"change": each}, seed) for each in changes for seed in (1, 2)]
    draw(found, tmp_path)
    figure = plot.figure_of(faceted(found, plot.curve, None), "lines", None, "step", "loss", "change")
    figure.draw_without_rendering()
    [axes] = figure.axes
    assert axes.get_position().width * figure.get_size_inches()[0] > 2.5, "inches that the names leave to the curves"
