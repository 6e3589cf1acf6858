"""The lock that lets only one process at a time train a run; the system drops it however the process ends."""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from glassformer.base.errors import CheckpointError
from glassformer.store.files import explained, make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "run.lock"
"""The lock file, empty and never deleted: what counts is flock(2) on it, and a deleted file could be locked twice."""
TRIES, INSTANT = 1000, 0.001
"""How many times to try the lock while other processes only test it, and the seconds between two tries."""


class RunLock:
    """The right to write in a run folder, until `release`, the end of this object or the end of the process.

    Where the system or the file system has no flock(2), `works` is False and nobody is kept out. The lock is on an
    open file, whose folder others may delete or replace: `in_place` tells whether they did.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.works = True
        self._close: weakref.finalize[[int], RunLock] | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode number of the locked file."""

    def take(self) -> None:
        """Take the lock unless we hold it; if the folder was deleted since, create it again and lock the new one.

        Errors: `CheckpointError` if another process holds the lock; those of `refuse_replaced`.
        """
        if self.held and self.in_place():
            return
        self.refuse_replaced()
        with explained(self.run / LOCK, 0):
            make_folder(self.run)
            handle = os.open(self.run / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            self.works = locked(handle)
        except BlockingIOError:
            os.close(handle)
            raise CheckpointError(in_training(self.run)) from None
        self.release()
        self._close = weakref.finalize(self, os.close, handle)
        self._file = identity(os.fstat(handle))
        locks.add(self)
        if not self.in_place():  # another process deleted the file between our open and our lock
            self.release()
            self.take()

    def release(self) -> None:
        """Let others train the run."""
        if self._close is not None:
            self._close()

    def in_place(self) -> bool:
        """Whether the locked file is still the one in the run folder, neither deleted nor replaced."""
        try:
            return identity(os.lstat(self.run / LOCK)) == self._file
        except OSError:
            return False

    def refuse_replaced(self) -> None:
        """Raise `CheckpointError` if another run has taken the place of the locked one."""
        if self.held and not self.in_place() and os.path.lexists(self.run / LOCK):
            raise CheckpointError(
                f"A run writes only in its own folder; {self.run} was deleted during training, and another run is "
                "there now. This run ends, and the files of the other were not touched. Train in another folder with "
                "--out."
            )

    @property
    def held(self) -> bool:
        """Whether the lock was taken and not released."""
        return self._close is not None and self._close.alive


locks: WeakSet[RunLock] = WeakSet()
"""The locks that this process has taken."""


def lock_on(run: Path) -> RunLock | None:
    """Return the lock that this process holds on a run folder, or None."""
    return next((lock for lock in locks if lock.run == run and lock.held and lock.in_place()), None)


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return the device and inode number, which identify a file whatever its name."""
    return status.st_dev, status.st_ino


def locked(handle: int) -> bool:
    """Lock an open file. Returns False if locks are unsupported. Errors: `BlockingIOError` if another holds the lock.

    A process that only tests the lock (`refuse_in_training`) holds a shared lock for an instant; we wait for that one.
    """
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            return flocked(handle, "LOCK_EX")
        flocked(handle, "LOCK_SH")  # raises if a process is training
        flocked(handle, "LOCK_UN")
        time.sleep(INSTANT)
    return flocked(handle, "LOCK_EX")


def flocked(handle: int, how: str) -> bool:
    """Call flock(2) without waiting. Returns False if locks are unsupported. Errors: `BlockingIOError`."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, getattr(fcntl, how) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a network file system, for instance
        return False
    return True


def refuse_in_training(run: Path) -> None:
    """Raise `CheckpointError` if a process is training in this run folder; see `trains`."""
    with suppress(PermissionError):
        if (run / LOCK).is_symlink():
            raise CheckpointError(
                f"The lock of a run must be a file in its own folder; {run / LOCK} is a symbolic link. Delete the link."
            )
    if trains(run):
        raise CheckpointError(in_training(run))


def trains(run: Path) -> bool:
    """Whether a process is training in this run folder.

    Writes nothing and does not keep out a run that starts at the same moment.
    """
    with suppress(OSError):
        handle = os.open(run / LOCK, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            flocked(handle, "LOCK_SH")
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False


def in_training(run: Path) -> str:
    """Return the message for a run that another process is training."""
    return (
        f"Only one process at a time may train a run; another process is training {run}. Wait until it ends, or stop "
        "it (on Ctrl-C or SIGTERM it saves a checkpoint first); or train a new run in another folder: glassformer "
        "train ... --out."
    )
