"""One process at a time trains a run: a lock on a file in its folder, which no end of a process leaves behind."""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from glassformer.foundation.errors import CheckpointError
from glassformer.store.files import explained, make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "run.lock"
"""The file. It is empty and stays: what counts is the lock on it, flock(2); a deleted file could be locked twice."""
TRIES, INSTANT = 1000, 0.001
"""How often a run tries to lock what others only ask about, and the seconds between."""


class RunLock:
    """The right to write in a run folder; ended by `release`, by the end of this object or by that of the process.

    Where the system or the file system has no such locks, `works` is False and nobody is kept out. The lock is on a
    file, and a folder may be deleted or replaced while that file is open: `in_place` tells.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.works = True
        self._close: weakref.finalize[[int], RunLock] | None = None
        self._file: tuple[int, int] | None = None
        """Device and number of the file that was locked."""

    def take(self) -> None:
        """Take the lock, unless it is ours already; where the folder was deleted since, take that of a new one.

        Errors: `CheckpointError` where another has it; those of `refuse_replaced`.
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
        if not self.in_place():  # deleted by another after it was opened, and before it was locked
            self.release()
            self.take()

    def release(self) -> None:
        """Let others train the run."""
        if self._close is not None:
            self._close()

    def in_place(self) -> bool:
        """Whether the file that was locked is the one in the run folder: neither deleted nor replaced."""
        try:
            return identity(os.lstat(self.run / LOCK)) == self._file
        except OSError:
            return False

    def refuse_replaced(self) -> None:
        """Errors: `CheckpointError` where another run lies where the locked one was."""
        if self.held and not self.in_place() and os.path.lexists(self.run / LOCK):
            raise CheckpointError(
                f"A run writes in its own folder only; {self.run} was deleted in training, and another run lies there "
                "now. This one ends, and nothing of the other was touched. Train in another folder with --out."
            )

    @property
    def held(self) -> bool:
        """Whether it was taken and not ended."""
        return self._close is not None and self._close.alive


locks: WeakSet[RunLock] = WeakSet()
"""Those that this process took."""


def lock_on(run: Path) -> RunLock | None:
    """The lock by which this process trains in a run folder; none where it does not."""
    return next((lock for lock in locks if lock.run == run and lock.held and lock.in_place()), None)


def identity(status: os.stat_result) -> tuple[int, int]:
    """What tells two files apart, whatever their names."""
    return status.st_dev, status.st_ino


def locked(handle: int) -> bool:
    """Lock an open file; False where there are no locks. Errors: `BlockingIOError` where another has the lock.

    Who only asks holds a lock, too, for an instant; those locks can be shared, and are waited for.
    """
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            return flocked(handle, "LOCK_EX")
        flocked(handle, "LOCK_SH")  # raises where one trains
        flocked(handle, "LOCK_UN")
        time.sleep(INSTANT)
    return flocked(handle, "LOCK_EX")


def flocked(handle: int, how: str) -> bool:
    """flock(2), without waiting; False where there are no locks. Errors: `BlockingIOError`."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, getattr(fcntl, how) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # of a network's file system, for instance
        return False
    return True


def refuse_in_training(run: Path) -> None:
    """Refuse a run folder that a process trains in. Nothing is written, and no run that starts meanwhile is kept out.

    Errors: `CheckpointError`.
    """
    with suppress(FileNotFoundError, PermissionError):
        if (run / LOCK).is_symlink():
            raise CheckpointError(
                f"A run is locked by a file in its own folder; {run / LOCK} is a link elsewhere. Delete the link."
            )
        handle = os.open(run / LOCK, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            flocked(handle, "LOCK_SH")
        except BlockingIOError:
            raise CheckpointError(in_training(run)) from None
        finally:
            os.close(handle)


def in_training(run: Path) -> str:
    """The message for a run that is taken."""
    return (
        f"Only one process at a time may train a run; {run} is being trained already. Wait for that process to end, or "
        "stop it (Ctrl-C or SIGTERM lets it save first); or train anew in another folder: glassformer train ... --out."
    )
