"""A run is trained by one process at a time; no way of ending a process leaves the lock behind."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from glassformer.base.errors import CheckpointError
from glassformer.store import folders as module
from glassformer.store.folders import LOCK, RunLock, lock_on, refuse_in_training

TAKEN = r"Only one process at a time may train a run; another process is training .*run\. Wait .* --out"

RACER = """
import sys
from pathlib import Path
from glassformer.base.errors import CheckpointError
from glassformer.store.folders import RunLock
locks = []
for line in sys.stdin:
    locks.append(RunLock(Path(line.strip())))
    try:
        locks[-1].take()
        print("taken", flush=True)
    except CheckpointError as error:
        print(error, flush=True)
"""
"""Takes the lock of each run that it is told of, and keeps it."""

HOLDER = """
import sys
from pathlib import Path
from glassformer.store.folders import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.take()
print("taken", flush=True)
sys.stdin.read()
"""


def taken(run: Path) -> RunLock:
    lock = RunLock(run)
    lock.take()
    return lock


def begun(*words: str) -> subprocess.Popen[str]:
    """A program of this file, with what it is given."""
    return subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def holder(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has the lock of the run and waits."""
    with begun(HOLDER, str(tmp_path / "run")) as process:
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_another_process_is_kept_out_until_this_one_is_killed(tmp_path, holder):
    run = tmp_path / "run"
    for refused in (lambda: taken(run), lambda: refuse_in_training(run)):
        with pytest.raises(CheckpointError, match=TAKEN):
            refused()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (run / LOCK).exists()
    refuse_in_training(run)
    taken(run).release()


def test_of_two_processes_that_begin_at_once_one_is_kept_out(tmp_path):
    """100 times in a folder that is not there yet (R17)."""
    with begun(RACER) as first, begun(RACER) as second:
        for number in range(100):
            run = tmp_path / f"run-{number}"
            for process in (first, second):
                process.stdin.write(f"{run}\n")
            for process in (first, second):
                process.stdin.flush()
            result = [process.stdout.readline().strip() for process in (first, second)]
            assert "taken" in result
            result.remove("taken")
            assert f"another process is training {run}" in result[0]
        for process in (first, second):
            process.kill()


def test_another_session_of_this_process_is_kept_out_too(tmp_path):
    run = tmp_path / "run"
    first = taken(run)
    first.take()  # it is ours already
    with pytest.raises(CheckpointError, match=TAKEN):
        taken(run)


def test_lock_ends_with_its_object_or_by_release(tmp_path):
    run = tmp_path / "run"
    lock = taken(run)
    lock.release()
    lock.release()
    second = taken(run)
    assert second.works
    del second
    lock.take()
    with pytest.raises(CheckpointError, match=TAKEN):
        refuse_in_training(run)


@pytest.fixture
def probing(tmp_path) -> Iterator[Callable[[], None]]:
    """Somebody asks about the run, and has not done with it yet; what ends that."""
    taken(tmp_path / "run").release()
    handle = os.open(tmp_path / "run" / LOCK, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    with closing(os.fdopen(handle)) as file:
        yield file.close


def test_a_run_that_starts_while_it_is_asked_about_is_not_refused(tmp_path, probing, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _: probing())
    taken(tmp_path / "run").release()


def test_asking_takes_no_lock_that_keeps_others_out(tmp_path, probing, monkeypatch):
    """Two ask at once; and what somebody shares for good keeps a run out in the end."""
    refuse_in_training(tmp_path / "run")
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    with pytest.raises(CheckpointError, match=TAKEN):
        taken(tmp_path / "run")


def test_who_may_only_read_may_ask(tmp_path, holder, monkeypatch):
    """A run of somebody else: its lock is opened to be read."""
    own = os.open
    monkeypatch.setattr(module.os, "open", lambda path, flags, *more: own(path, refuse_writing(flags), *more))
    with pytest.raises(CheckpointError, match=TAKEN):
        refuse_in_training(tmp_path / "run")


def refuse_writing(flags: int) -> int:
    if flags & (os.O_RDWR | os.O_WRONLY):
        raise PermissionError
    return flags


def test_looking_leaves_nothing(tmp_path):
    refuse_in_training(tmp_path)
    refuse_in_training(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_link_in_its_place_is_refused(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"run\.lock cannot be written"):
        taken(tmp_path)
    with pytest.raises(CheckpointError, match=r"run\.lock is a symbolic link\. Delete the link"):
        refuse_in_training(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_lock_follows_the_folder(tmp_path):
    """Deleted: it is taken in a new one. Replaced by another run: nothing is written there, in training or not."""
    run = tmp_path / "run"
    first = taken(run)
    shutil.rmtree(run)
    assert not first.in_place()
    first.take()
    assert first.in_place()
    shutil.rmtree(run)
    second = taken(run)
    assert (first.in_place(), lock_on(run)) == (False, second)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="was deleted during training, and another run is there now"):
            first.take()
        second.release()


def test_lock_of_a_file_that_is_deleted_as_it_is_taken(tmp_path, monkeypatch):
    """Between open and flock, as by --overwrite of another process."""
    run, flock, once = tmp_path / "run", module.locked, [1]

    def locked(handle: int) -> bool:
        if once:
            once.clear()
            shutil.rmtree(run)
        return flock(handle)

    monkeypatch.setattr(module, "locked", locked)
    assert taken(run).in_place()


@pytest.mark.parametrize("system", ["without fcntl", "without locks"])
def test_where_there_are_no_locks_nobody_is_kept_out(tmp_path, monkeypatch, system):
    def flock(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if system == "without fcntl":
        monkeypatch.setattr(module, "fcntl", None)
    else:
        monkeypatch.setattr(module.fcntl, "flock", flock)
    assert [taken(tmp_path).works, taken(tmp_path).works] == [False, False]
