"""One process at a time trains a run: a lock on a file in its folder, which no end of a process leaves behind."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path

from glassformer.foundation.errors import CheckpointError
from glassformer.store.files import explained, make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "run.lock"
"""The file. It is empty and stays: what counts is the lock on it, flock(2); a deleted file could be locked twice."""


class RunLock:
    """The right to write in a run folder; ended by `release`, by the end of this object or by that of the process.

    Where the system or the file system has no such locks, `works` is False and nobody is kept out.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.works = True
        self._close: weakref.finalize[[int], RunLock] | None = None

    def take(self) -> None:
        """Take the lock, unless it is ours already. Errors: `CheckpointError` where another has it."""
        if self._close is not None and self._close.alive:
            return
        with explained(self.run / LOCK, 0):
            make_folder(self.run)
            handle = os.open(self.run / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        self._close = weakref.finalize(self, os.close, handle)
        try:
            self.works = locked(handle)
        except BlockingIOError:
            self.release()
            raise CheckpointError(in_training(self.run)) from None

    def release(self) -> None:
        """Let others train the run."""
        if self._close is not None:
            self._close()


def locked(handle: int) -> bool:
    """Lock an open file; False where there are no locks. Errors: `BlockingIOError` where another has the lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # of a network's file system, for instance
        return False
    return True


def refuse_in_training(run: Path) -> None:
    """Refuse a run folder that a process trains in. Nothing is written. Errors: `CheckpointError`."""
    with suppress(FileNotFoundError, PermissionError):
        handle = os.open(run / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            locked(handle)
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
