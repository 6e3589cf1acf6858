"""Checkpoints are written beside training, as the run was at the call; what the disk does not take is tried again."""

import errno
import os
import shutil
from pathlib import Path
from threading import Event as Signal
from threading import current_thread, main_thread

import pytest
import torch

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.base.launched import Launched
from glassformer.store.checkpoint import load, load_optimizer, take_snapshot, write_snapshot
from glassformer.store.folders import checkpoints, newest, step_folder
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.records import Evaluated, Finished, Progress, Saved, Stopped, Unsaved
from glassformer.train.report import Reporter
from glassformer.train.run import saving
from glassformer.train.run.session import resume, start
from store import examples
from train.examples import assert_same, assert_same_end, follow, recipe, weights
from train.run.test_session import script

FULL = ResourceError("the disk is full. Needed: 100 bytes; free: 7 bytes.")


@pytest.fixture
def disk(monkeypatch) -> list[int]:
    """The steps whose checkpoints the disk does not take; tests change it."""
    refused: list[int] = []

    def write(folder: Path, snapshot):
        if int(folder.name[5:]) in refused:
            raise FULL
        return write_snapshot(folder, snapshot)

    monkeypatch.setattr(saving, "write_snapshot", write)
    return refused


@pytest.mark.parametrize("seed", range(5))
def test_snapshot_is_what_it_was_at_the_call(tmp_path, seed):
    """Whatever happens to weights and moments right after (R19)."""
    model, words = examples.model(seed), examples.tokenizers()
    moments = examples.moments(model, seed)
    options = {"step": 1, "list": [1]}
    snapshot = take_snapshot(model, words, optimizer=moments, state=options).copied()
    with torch.no_grad():
        for tensor in (*model.parameters(), *(each for slots in moments.values() for each in slots.values())):
            tensor.zero_() if seed % 2 else tensor.add_(seed + 1)
    options["list"].append(2)
    loaded = load(write_snapshot(tmp_path / "one", snapshot))
    examples.same_weights(loaded.model, examples.model(seed))
    examples.same_moments(load_optimizer(tmp_path / "one"), examples.moments(examples.model(seed), seed))
    assert loaded.state == {"step": 1, "list": [1]}


def test_training_goes_on_while_the_disk_is_slow(tmp_path, monkeypatch):
    """The checkpoint of step 3 is written after step 5 was trained, and holds the weights of step 3."""
    go, threads = Signal(), []

    def write(folder: Path, snapshot):
        threads.append(current_thread())
        assert go.wait(60)
        return write_snapshot(folder, snapshot)

    monkeypatch.setattr(saving, "write_snapshot", write)
    settings = {"checkpoint__every": 3, "checkpoint__background": True, "training__evaluate_every": 0}
    session = start(recipe(**settings, training__steps=7), tmp_path / "run")
    at, order = {}, []
    for event in session.train():
        if isinstance(event, Progress):
            at[event.step] = weights(session.model)
        order.append((type(event), event.step))
        assert go.is_set() or not checkpoints(tmp_path / "run")
        if order[-1] == (Progress, 5):
            go.set()
    assert order.index((Saved, 3)) > order.index((Progress, 5))
    assert order.index((Saved, 3)) < order.index((Saved, 6)) < order.index((Finished, 7))
    assert main_thread() not in threads
    for step, folder in checkpoints(tmp_path / "run").items():
        assert_same(weights(load(folder).model), at[step])


def test_one_at_a_time_and_each_is_told_when_it_is_there(tmp_path, monkeypatch):
    """The first write lasts until someone waits for it, which the second save must do."""
    under_way: list[int] = []
    waited_for = Signal()

    def write(folder: Path, snapshot):
        assert not under_way
        under_way.append(1)
        assert waited_for.wait(60)
        written = write_snapshot(folder, snapshot)
        under_way.clear()
        return written

    monkeypatch.setattr(saving, "write_snapshot", write)
    session, seen = start(recipe(checkpoint__every=1, checkpoint__background=True), tmp_path / "run"), []
    close = session.saver.close

    def closing() -> None:
        if session.saver._thread is not None:
            waited_for.set()
        close()

    monkeypatch.setattr(session.saver, "close", closing)
    for event in session.train():
        if isinstance(event, Saved):
            assert event.path.is_dir()
            seen.append(event.step)
    assert seen == list(range(1, 13))


def test_background_changes_no_bit(tmp_path):
    for name, background in (("one", True), ("other", False)):
        follow(start(recipe(checkpoint__every=2, checkpoint__background=background), tmp_path / name))
    assert list(checkpoints(tmp_path / "one")) == list(checkpoints(tmp_path / "other"))
    shutil.copy(tmp_path / "other" / "recipe.toml", tmp_path / "one")
    assert_same_end(tmp_path / "one", tmp_path / "other")


def test_bug_in_the_background_comes_out(tmp_path, monkeypatch):
    def write(folder: Path, snapshot):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(saving, "write_snapshot", write)
    session = start(recipe(checkpoint__every=1, checkpoint__background=True), tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(session.train())
    assert resume(tmp_path / "run").step == 0  # the lock is free


@pytest.mark.parametrize("background", [False, True])
def test_full_disk_ends_nothing(tmp_path, disk, background):
    """Told once, tried again when the next one is due; the bits are those of a run with room."""
    disk += [3, 6]
    settings = {"checkpoint__every": 3, "training__evaluate_every": 0, "checkpoint__background": background}
    events = follow(start(recipe(**settings), tmp_path / "run"))
    result = [event for event in events if isinstance(event, Saved | Unsaved)]
    assert [(type(each), each.step) for each in result] == [(Unsaved, 3), (Saved, 9), (Saved, 12)]
    assert "Needed: 100 bytes; free: 7 bytes" in result[0].reason
    assert (tmp_path / "run" / "log.txt").read_text().count("NOT SAVED; training goes on") == 1
    assert list(checkpoints(tmp_path / "run")) == [9, 12]
    follow(start(recipe(**settings), tmp_path / "whole"))
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_disk_that_stays_full(tmp_path, disk):
    """Exit code 5 at the end, and nothing is lost that was there; with room the run goes on from it."""
    settings = {"checkpoint__every": 3, "training__evaluate_every": 0}
    disk += [6, 9, 12]
    with pytest.raises(
        ResourceError,
        match=r"step 12 could not be .*training: the disk is full.*free: 7 bytes.*saved is .*step-000000003",
    ) as caught:
        follow(start(recipe(**settings), tmp_path / "run"))
    assert caught.value.exit_code == 5
    assert "glassformer resume" in str(caught.value)
    disk.clear()
    follow(resume(tmp_path / "run"))
    follow(start(recipe(**settings), tmp_path / "whole"))
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_interrupted_run_that_cannot_be_saved_says_so(tmp_path, disk):
    disk += [5]
    with pytest.raises(ResourceError, match="step 5 could not be saved"):
        follow(start(recipe(checkpoint__every=2), tmp_path / "run"), stop_after=5)
    assert newest(tmp_path / "run").folder == step_folder(tmp_path / "run", 4)


def test_the_best_is_kept_until_the_next_best_is_on_the_disk(tmp_path, monkeypatch, disk):
    """Step 8 is better than step 4 but finds no room; 9 does: 4 stays until 8, kept in memory, is written too."""
    script(monkeypatch, [3.0, 2.0, 2.5], "loss")
    disk += [8]
    session = start(recipe(checkpoint__every=1, checkpoint__keep=1, training__metric="loss"), tmp_path / "run")
    at = {}
    for event in session.train():
        if isinstance(event, Progress):
            at[event.step] = weights(session.model)
        if isinstance(event, Saved) and event.step in (9, 10):
            assert set(checkpoints(tmp_path / "run")) == ({4, 9} if event.step == 9 else {8, 10})
            disk.clear()
    assert set(checkpoints(tmp_path / "run")) == {8, 12}
    assert_same(weights(load(tmp_path / "run").model), at[8])


def test_best_that_never_found_room_is_told_at_the_end(tmp_path, monkeypatch, disk):
    script(monkeypatch, [3.0, 2.0, 2.5], "loss")
    disk += [8]
    with pytest.raises(ResourceError, match="step 8 could not be saved, not even at the end of training"):
        follow(start(recipe(checkpoint__every=1, checkpoint__keep=1, training__metric="loss"), tmp_path / "run"))
    assert set(checkpoints(tmp_path / "run")) == {4, 12}


@pytest.mark.parametrize(("every", "left"), [(0, [12]), (4, [4, 8, 12]), (5, [5, 10, 12]), (3, [3, 6, 9, 12])])
def test_every_kth_is_kept(tmp_path, every, left):
    settings = {"training__evaluate_every": 0, "checkpoint__keep": 1, "checkpoint__keep_every": every}
    follow(start(recipe(**settings, checkpoint__every=1), tmp_path / "run"))
    assert list(checkpoints(tmp_path / "run")) == left


def test_checkpoints_that_a_resume_passed_over_are_not_counted(tmp_path):
    run, settings = tmp_path / "run", {"training__evaluate_every": 0, "checkpoint__every": 2, "checkpoint__keep": 2}
    follow(start(recipe(**settings), run), stop_after=8)
    (step_folder(run, 8) / "model.safetensors").write_bytes(b"")
    left = [
        list(checkpoints(run))
        for event in resume(run, requested={"checkpoint.every": 3}).train()
        if isinstance(event, Saved)
    ]
    assert left == [[6, 8, 9], [9, 12]]


def test_what_cannot_be_deleted_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.store.folders.delete", refuse_to_delete)
    events = follow(
        start(recipe(checkpoint__every=6, checkpoint__keep=1, training__evaluate_every=0), tmp_path / "run")
    )
    notes = [note for event in events if isinstance(event, Saved) for note in event.notes]
    assert notes == [f"{step_folder(tmp_path / 'run', 6)} cannot be deleted: Permission denied. Delete it by hand."]
    assert notes[0] in (tmp_path / "run" / "log.txt").read_text()


def refuse_to_delete(folder: Path) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


# --- stopping in an evaluation


@pytest.mark.parametrize("step", [4, 12])
def test_stopped_in_an_evaluation(tmp_path, step):
    """The evaluation is given up within a step and made good by the resume: same figures, same bits."""
    follow(start(recipe(), tmp_path / "whole"))
    events = follow(start(recipe(), tmp_path / "run"), stop_after=step)
    assert [type(each) for each in events[-3:]] == [Progress, Saved, Stopped]
    assert load(step_folder(tmp_path / "run", step)).state["evaluation_due"] is True
    again = follow(resume(tmp_path / "run"))
    assert (type(again[1]), again[1].step) == (Evaluated, step)
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_evaluation_is_asked_between_tokens(tmp_path):
    """Whether to go on: at each batch of the loss, each batch of answers, and each of their tokens."""
    requests = []
    session = start(recipe(decode__batch_size=3), tmp_path / "run")
    session._poll = lambda: requests.append(1)
    session.evaluate()
    assert len(requests) >= 2 + 2 + 2


# --- What becomes of a run between two steps: a signal to several processes, and memory that runs out there


class Agreed(Ranks):
    """The first of two processes, of which the other is told the same and says so."""

    def __init__(self) -> None:
        super().__init__(Launched(0, 2, 0, 2))

    def _reduced(self, value, operation):
        return float(value)


def test_a_signal_to_several_comes_before_the_evaluation(tmp_path):
    """It is left due, as they would have to go on to its end; `gathered` would fail here, as nobody else is there."""
    session = start(recipe(), tmp_path / "run")
    session.ranks, session.evaluation_due = Agreed(), True
    session.interrupt()
    steps = session._after_step()
    assert [type(event) for event in steps] == [Saved]
    assert load(tmp_path / "run").state["evaluation_due"]
    assert session._ended() == "interrupted"


# --- A run writes in its own folder: one that was deleted is made anew, one of another run is left alone; and in order


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
