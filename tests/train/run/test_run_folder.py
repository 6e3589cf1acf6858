"""A run writes in its own folder: one that was deleted is made anew, one of another run is left alone; and in order."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store.checkpoint import write_snapshot
from glassformer.store.folders import checkpoints
from glassformer.train.records import Finished, Progress, Saved
from glassformer.train.report import Reporter
from glassformer.train.run import saving
from glassformer.train.run.session import resume, start
from store import examples
from train.examples import follow, recipe


def test_folder_that_was_deleted_is_made_anew(tmp_path):
    """With the recipe, so that the run can be resumed; and it says so."""
    run, notes = tmp_path / "run", []
    session = start(recipe(checkpoint__every=5), run)
    for event in session.train():
        if isinstance(event, Progress) and event.step == 7:
            shutil.rmtree(run)
        if isinstance(event, Saved):
            notes += event.notes
    assert list(checkpoints(run))[-1] == 12
    assert "recipe.toml was deleted" in notes[0]
    assert isinstance(follow(resume(run))[-1], Finished)


def test_another_run_in_the_folder_is_left_alone(tmp_path):
    """A run was deleted in training and another began in its place: the first ends, and changes no byte of it."""
    run, settings = tmp_path / "run", {"checkpoint__every": 2, "checkpoint__keep": 1}
    first = start(recipe(**settings), run)
    before = []

    def trained() -> None:
        with Reporter(run) as report:
            for event in first.train():
                report(event)
                if isinstance(event, Progress) and event.step == 3:
                    shutil.rmtree(run)
                    follow(start(recipe(**settings, training__seed=9), run))
                    before.append(everything(run))

    with pytest.raises(CheckpointError, match="another run is there now"):
        trained()
    assert [everything(run)] == before


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_read_only_folder_is_told(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    session = start(recipe(checkpoint__every=4), tmp_path / "run")
    monkeypatch.setattr("glassformer.store.files.put_in_place", refuse)
    with pytest.raises(ResourceError, match="Read-only file system"):
        list(session.train())
    assert examples.names(tmp_path / "run" / "checkpoints") == []


def test_figures_are_on_the_disk_before_the_checkpoint(tmp_path, monkeypatch):
    """Else a power cut could take those of steps that are never trained again."""
    order, run = [], tmp_path / "run"
    monkeypatch.setattr("glassformer.train.records.sync_file", lambda path: order.append(path.name))

    def write(folder: Path, snapshot):
        assert f'"step": {int(folder.name[5:])},' in (run / "metrics.jsonl").read_text()
        order.append(folder.name)
        return write_snapshot(folder, snapshot)

    monkeypatch.setattr(saving, "write_snapshot", write)
    follow(start(recipe(checkpoint__every=6, training__evaluate_every=0), run))
    each = ["metrics.jsonl", "timing.jsonl"]
    assert order == [*each, "step-000000006", *each, "step-000000012"]
