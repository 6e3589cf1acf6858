"""The curves for TensorBoard: the figures of metrics.jsonl, each step once however often a run was cut."""

import json
import warnings
from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.train import records as records
from glassformer.train.recipe import load_recipe
from glassformer.train.report import Reporter
from glassformer.train.run.session import resume, start
from train.examples import STEPS, assert_same_end, killed_after, recipe

TRACKED = {"training__track": "tensorboard"}


@pytest.fixture(scope="module")
def reader():
    """What reads a folder of events as TensorBoard does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install tensorboard")
        return pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator


def followed(session) -> None:
    """To its end, told to whom the recipe says."""
    with Reporter(session.run, track=session.recipe.training.track) as report:
        for event in session.train():
            report(event)


def read(reader, run: Path):
    found = reader(str(run / records.FOLDER), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


@pytest.fixture(scope="module")
def tracked(reader, tmp_path_factory):
    run = tmp_path_factory.mktemp("tracked") / "run"
    followed(start(recipe(checkpoint__every=1, **TRACKED), run))
    return run


def test_the_curves_are_the_figures_of_the_run(reader, tracked):
    found = read(reader, tracked)
    lines = [json.loads(line) for line in (tracked / "metrics.jsonl").read_text().splitlines()]
    for kind, names in (
        ("train", ("loss", "learning_rate", "grad_norm", "pad_share")),
        ("dev", ("loss", "exact_match", "n")),
    ):
        for name in names:
            expected = [(line["step"], pytest.approx(line[name], rel=1e-6)) for line in lines if line["kind"] == kind]
            assert [(each.step, each.value) for each in found.Scalars(f"{kind}/{name}")] == expected
    assert [each.step for each in found.Scalars("train/tokens_per_second")] == list(range(1, STEPS + 1))
    (text,) = found.Tensors("samples/text_summary")[0].tensor_proto.string_val
    assert "target" in text.decode()
    assert [each.step for each in found.Tensors("samples/text_summary")] == [4, 8, 12]


@pytest.mark.parametrize("step", [3, 7])
def test_a_resumed_run_shows_each_step_once(reader, tracked, tmp_path, step):
    """What the killed run wrote beyond its last checkpoint is not shown beside what the resumed one writes."""
    run = killed_after(tracked, step, tmp_path / "run")
    followed(resume(run))
    assert_same_end(run, tracked)
    assert len(list((run / records.FOLDER).iterdir())) == 2
    found, whole = read(reader, run), read(reader, tracked)
    for name in ("train/loss", "dev/exact_match"):
        assert [(e.step, e.value) for e in found.Scalars(name)] == [(e.step, e.value) for e in whole.Scalars(name)]


def test_a_resume_may_begin_to_track(reader, whole, tmp_path):
    run = killed_after(whole, 5, tmp_path / "run")
    followed(resume(run, requested={"training.track": "tensorboard"}))
    assert [each.step for each in read(reader, run).Scalars("train/loss")] == list(range(6, STEPS + 1))
    assert load_recipe(run / "recipe.toml").training.track == "tensorboard"


def test_a_full_disk_delays_them(reader, tracked, tmp_path, monkeypatch):
    """They wait in memory, as the lines of metrics.jsonl do."""
    run = killed_after(tracked, 7, tmp_path / "run")
    session = resume(run)
    with Reporter(run, track="tensorboard") as report:
        for event in session.train():
            file = report.records.files.get(records.FOLDER)
            if file is not None and session.step == 9:
                real = file.flush
                monkeypatch.setattr(file, "flush", lambda: None)
                report(event)
                assert any(each.startswith(records.FOLDER) for each in report.records.unwritten)
                monkeypatch.setattr(file, "flush", real)
                continue
            report(event)
    assert [each.step for each in read(reader, run).Scalars("train/loss")] == list(range(1, STEPS + 1))


def test_without_the_package_it_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'tensorboard>="):
        start(recipe(data__task="pairs", data__train="nowhere.tsv", **TRACKED), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start(recipe(), tmp_path / "other")


def test_nothing_is_written_unasked(whole):
    assert not (whole / records.FOLDER).exists()
