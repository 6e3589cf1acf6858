"""A run that is killed, crashes or loses a checkpoint: resumed, it ends as if nothing had happened, bit for bit."""

import errno
import gc
import os
import re
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fresh import python
from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.store.folders import step_folder
from glassformer.train.recipe import Recipe
from glassformer.train.records import Evaluated, Event, Progress, Saved, Unsaved
from glassformer.train.report import Reporter
from glassformer.train.run.session import resume, start
from store.faults import CRASHES, Crash, trapped
from train.examples import assert_same_end, follow, recipe


def tiny() -> Recipe:
    """Checkpoints at 3, 6, 9 and 12, evaluations at 4, 8 and 12, which add the best."""
    return recipe(checkpoint__every=3, checkpoint__keep=2)


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> tuple[Path, list[tuple[str, str]]]:
    """A run that nothing happened to, and its calls to the disk with what they are about.

    One before it loads our C++, whose sources the process then reads no more.
    """
    run = tmp_path_factory.mktemp("whole") / "run"
    follow(start(tiny(), run.with_name("before")))
    with trapped() as counted:
        follow(start(tiny(), run))
    assert len(counted.log) > 150
    return run, counted.log


@pytest.fixture(scope="module")
def whole(traced) -> Path:
    return traced[0]


def finish(run: Path) -> None:
    """Go on from whatever is left, or from nothing where nothing is left."""
    try:
        follow(resume(run))
        return
    except (CheckpointError, ConfigError) as error:
        if not re.search(r"no intact checkpoint|recipe\.toml cannot be read", str(error)):
            raise
    shutil.rmtree(run, ignore_errors=True)
    follow(start(tiny(), run))


def events_until(run: Path, kind: type[Event], step: int) -> Iterator[None]:
    """Train up to one event, and then no more, as if the power had gone: nothing is closed, nothing is saved."""
    report = Reporter(run)
    for event in start(tiny(), run).train():
        report(event)
        if isinstance(event, kind) and event.step == step:
            yield
            break
    report.records.close()


@pytest.mark.parametrize(
    ("kind", "step"),
    [(Progress, 3), (Saved, 3), (Evaluated, 8), (Progress, 12), (Evaluated, 12)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_stopped_at_any_event(whole, tmp_path, kind, step):
    assert list(events_until(tmp_path / "run", kind, step)) == [None]
    finish(tmp_path / "run")
    assert_same_end(tmp_path / "run", whole)


@pytest.mark.parametrize("tries", [3, pytest.param(None, marks=pytest.mark.slow)], ids=["a few", "every one"])
@pytest.mark.parametrize("how", CRASHES)
def test_crash_at_calls_to_the_disk(traced, tmp_path, how, tries):
    """Each the last that the dying process makes, or makes half of."""
    whole, calls = traced
    stride = len(calls) // (tries or len(calls))
    for at in range(stride * CRASHES.index(how) // len(CRASHES), len(calls), stride):
        run = tmp_path / str(at)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)  # a dying process closes nothing
            with pytest.raises(Crash), trapped(at, how):
                follow(start(tiny(), run))
            gc.collect()
        finish(run)
        assert_same_end(run, whole)


@pytest.mark.parametrize("call", ["fsync", "rename", "save_file"])
def test_disk_that_is_full_for_a_while(traced, tmp_path, call):
    """The run goes on without the checkpoint that found no room, and ends as one that always had room."""
    (whole, calls), run = traced, tmp_path / "run"
    makes = [at for at, (name, path) in enumerate(calls) if name == call and (name != "rename" or renamed(path))]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with trapped(makes[len(makes) // 2], error=full):
        events = follow(start(tiny(), run))
    unsaved = [event for event in events if isinstance(event, Unsaved)]
    assert ["the disk is full" in each.reason and "free: " in each.reason for each in unsaved] == [True]
    assert "NOT SAVED" in (run / "log.txt").read_text()
    assert_same_end(run, whole)


def renamed(paths: str) -> bool:
    """Whether a finished checkpoint gets its name here; an old one loses it before it is deleted."""
    return Path(paths.split()[-1]).name.startswith("step-")


def test_damaged_checkpoints_are_passed_over_and_named(whole, tmp_path):
    run = tmp_path / "run"
    follow(start(recipe(checkpoint__every=3, checkpoint__keep=9), run))
    (run / "recipe.toml").write_bytes((whole / "recipe.toml").read_bytes())
    for step, name in ((12, "optimizer.safetensors"), (9, "model.safetensors")):
        path = step_folder(run, step) / name
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    session = resume(run)
    passed = [note for note in session.notes if note.startswith("skipped: ")]
    assert [str(step_folder(run, step)) in note for step, note in zip((12, 9), passed, strict=True)] == [True, True]
    assert session.step == 8
    follow(session)
    assert_same_end(run, whole)


CHILD = """
import os, signal, sys
from pathlib import Path
import torch
from glassformer.train.records import Progress
from glassformer.train.report import Reporter
from glassformer.train.run.session import start
from faults.test_session_faults import tiny
run = Path(sys.argv[1])
with Reporter(run) as report:
    for event in start(tiny(), run).train():
        report(event)
        if isinstance(event, Progress) and event.step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_process(whole, tmp_path):
    """kill -9 on a process of its own: what it had written is there, and is enough."""
    run = tmp_path / "run"
    answer = python("-c", CHILD, run)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    assert (run / "metrics.jsonl").read_text().count("\n") == 8 + 1
    session = resume(run)
    assert session.step == 6
    follow(session)
    assert_same_end(run, whole)
