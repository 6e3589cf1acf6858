"""The checkpoints in a run folder: how they are named, which one to load, which ones to delete.

    runs/NAME/checkpoints/step-000001234/

Names and manifests tell which one is newest, never a pointer file or a clock, so the answer cannot be out of date.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
import weakref
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.store.files import (
    RESTORE,
    beside,
    explained,
    leftovers,
    make_folder,
    parse_json,
    read_json,
    read_text,
    readable,
    regular_size,
    without_links,
    write_new,
)

# MANIFEST.json: the size and SHA-256 of every file of a checkpoint. It is written last and marks a folder complete.

MANIFEST = "MANIFEST.json"
LARGEST = 2**20  # bytes of a manifest; ours have about 500
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""An allowed file name: no separator, drive or leading dot, so it names nothing outside its folder on any system."""


class Entry(NamedTuple):
    """The manifest's record of one file."""

    size: int
    sha256: str


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files in `folder`, durably. Call it last."""
    entries = {path.name: Entry(path.stat().st_size, sha256(path)) for path in sorted(folder.iterdir())}
    write_new(folder / MANIFEST, manifest_text(entries).encode("utf-8"))


def manifest_text(entries: Mapping[str, Entry]) -> str:
    """Return the only valid text for these entries, so that any changed byte of a manifest is detected."""
    return json.dumps({name: entry._asdict() for name, entry in entries.items()}, indent=2) + "\n"


def read_manifest(folder: Path) -> dict[str, Entry]:
    """Read the manifest of `folder` without comparing it with the files. Errors: `CheckpointError`."""
    path = folder / MANIFEST
    text = read_text(path, LARGEST)
    values = parse_json(text, path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must be a JSON object of file names; got {type(values).__name__}. {RESTORE}")
    entries = {name: read_entry(path, name, value) for name, value in values.items()}
    if text != manifest_text(entries):
        raise CheckpointError(f"{path} is damaged: it is not formatted as glassformer writes it. {RESTORE}")
    return entries


def read_entry(path: Path, name: str, value: Any) -> Entry:
    """Check one entry of the manifest and return it. Errors: `CheckpointError`."""
    if not PLAIN.fullmatch(name) or name == MANIFEST:
        raise CheckpointError(
            f"{path} lists {name[:60]!r}, which is not a plain file name (letters, digits and . _ - only). {RESTORE}"
        )
    match value:
        case {"size": int(size), "sha256": str(digest)} if size >= 0 and re.fullmatch(r"[0-9a-f]{64}", digest):
            return Entry(size, digest)
        case _:
            raise CheckpointError(f"{path}: {name!r} needs a size in bytes and a sha256 of 64 hex digits. {RESTORE}")


def check(folder: Path, *, read: Collection[str] | None = None, hashed: bool = True) -> dict[str, Entry]:
    """Compare files with the manifest of a checkpoint: those that will be `read` (None: all), by size and by SHA-256.

    Without `hashed`, by size only. Returns the manifest. Files that it does not list are not part of the checkpoint and
    are never read. Errors: `CheckpointError` naming the file that is missing or damaged.
    """
    entries = read_manifest(folder)
    checked = entries if read is None else {name: each for name, each in entries.items() if name in read}
    for name, listed in checked.items():
        size = regular_size(folder / name)
        if size != listed.size:
            raise CheckpointError(
                f"{folder / name} is damaged: {size:,} bytes instead of the {listed.size:,} in {MANIFEST}. {RESTORE}"
            )
    for name in checked if hashed else ():
        found = sha256(folder / name)
        if found != entries[name].sha256:
            raise CheckpointError(
                f"{folder / name} is damaged: its SHA-256 begins with {found[:12]}, but {MANIFEST} has "
                f"{entries[name].sha256[:12]}. {RESTORE}"
            )
    if missing := [name for name in REQUIRED if name not in entries]:
        raise CheckpointError(
            f"{folder / MANIFEST} does not list {', '.join(missing)}, so the checkpoint is incomplete. {RESTORE}"
        )
    return entries


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with readable(path), open(path, "rb", opener=without_links) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The checkpoints in a run folder: how they are named, which one to load, which ones to delete.

MODEL, OPTIMIZER, CONFIG = "model.safetensors", "optimizer.safetensors", "config.json"
TOKENIZER, SOURCE_TOKENIZER, STATE = "tokenizer.json", "source_tokenizer.json", "state.json"
REQUIRED = (MODEL, CONFIG, TOKENIZER, STATE)
FORMAT = 1
"""The format version of the whole folder, kept in state.json. A change that makes old files unreadable raises it."""

STEP = re.compile(r"step-([0-9]{9,})")


class Skipped(NamedTuple):
    """A checkpoint that was skipped, and why."""

    folder: Path
    reason: str


class Found(NamedTuple):
    """The checkpoint that was found, or None, and the damaged ones that were skipped on the way to it."""

    folder: Path | None
    skipped: tuple[Skipped, ...]


def step_folder(run_folder: Path, step: int) -> Path:
    """Return the folder for the checkpoint of `step` (the number of updates done)."""
    assert step >= 0, step
    return run_folder / "checkpoints" / f"step-{step:09d}"


def step_number(folder: Path) -> int | None:
    """Return the step in the name of a checkpoint folder, or None if `step_folder` would not give that name."""
    match = STEP.fullmatch(folder.name)
    return int(match[1]) if match and folder.name == f"step-{int(match[1]):09d}" else None


def checkpoints(run_folder: Path) -> dict[int, Path]:
    """Return all checkpoint folders of a run, complete or not, by step in ascending order.

    A checkpoint that a process had moved aside to replace it, before that process died, is found under its other name.
    """
    folder = run_folder / "checkpoints"
    with readable(folder):
        aside = [(each.home, each.path) for each in leftovers(folder) if each.kind == "old"]
        placed = [(path, path) for path in folder.iterdir()] if folder.is_dir() else []
    found: dict[int, Path] = {}
    for home, path in (*aside, *placed):  # a folder in its proper place comes later and wins
        step = step_number(home)
        if step is not None and path.is_dir() and not path.is_symlink():
            found[step] = path
    return dict(sorted(found.items()))


def last_complete(
    run_folder: Path, count: int, *, read: Collection[str] | None = None, hashed: bool = True
) -> tuple[list[Path], tuple[Skipped, ...]]:
    """Find the complete checkpoints of the `count` highest steps, newest first. Damaged ones are skipped and listed.

    There may be fewer. `read` and `hashed` as for `check`.
    """
    found: list[Path] = []
    skipped: list[Skipped] = []
    for folder in reversed(checkpoints(run_folder).values()):
        if len(found) == count:
            break
        try:
            check(folder, read=read, hashed=hashed)
            found.append(folder)
        except CheckpointError as error:
            skipped.append(Skipped(folder, str(error)))
    return found, tuple(skipped)


def newest(run_folder: Path, *, read: Collection[str] | None = None, hashed: bool = True) -> Found:
    """Find the complete checkpoint of the highest step, the one to resume from, as `last_complete` does."""
    found, skipped = last_complete(run_folder, 1, read=read, hashed=hashed)
    return Found(found[0] if found else None, skipped)


def best_or_newest(run_folder: Path, *, read: Collection[str] | None = None, hashed: bool = True) -> Found:
    """Find the checkpoint to use: of the step that the newest one's state gives as "best" (an integer), or the newest.

    A best checkpoint that is missing or damaged is skipped and listed. `read` and `hashed` as for `check`.
    """
    found = newest(run_folder, read=read, hashed=hashed)
    best = None if found.folder is None else read_state(found.folder).get("best")
    if best is None:
        return found
    if type(best) is not int or best < 0:
        raise CheckpointError(
            f'{found.folder}: "best" in {STATE} must be the number of a step; got {best!r:.60}. {RESTORE}'
        )
    folder = checkpoints(run_folder).get(best)
    try:
        if folder is None:
            raise CheckpointError(f"{step_folder(run_folder, best)}, the best checkpoint, is missing.")
        check(folder, read=read, hashed=hashed)
    except CheckpointError as error:
        passed = Skipped(folder or step_folder(run_folder, best), str(error))
        return found if passed in found.skipped else Found(found.folder, (*found.skipped, passed))
    return Found(folder, found.skipped)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state that `save` was given. Errors: `CheckpointError`, also for a format newer than `FORMAT`."""
    path = folder / STATE
    match read_json(path):
        case {"format": int(version), "state": dict(state)} if version <= FORMAT:
            return state
        case {"format": int(version)} if version > FORMAT:
            raise CheckpointError(
                f"{path} has format {version}, written by a newer glassformer; this one reads up to {FORMAT}. Upgrade "
                "glassformer."
            )
        case _:
            raise CheckpointError(f'{path} must hold "format" (a number) and "state" (an object). {RESTORE}')


def rotate(
    run_folder: Path,
    keep_last: int,
    best: int | None = None,
    *,
    keep_every: int = 0,
    complete: Path | None = None,
    damaged: Collection[Path] = (),
) -> list[str]:
    """Delete all but the newest `keep_last` checkpoints, after a save. Returns why any of them could not be deleted.

    It never deletes the one of step `best`, those of every `keep_every`-th step (0: off) or the newest complete one,
    so that a loadable checkpoint remains whatever else is damaged. If none is complete, it deletes nothing.
    `complete`: the checkpoint that was just saved; giving it saves reading the files to find a complete one.
    `damaged`: checkpoints known to be damaged. They do not count towards `keep_last`, and are deleted once they are
    older than all that count.
    """
    if keep_last < 1:
        raise ConfigError(f"The number of checkpoints to keep must be at least 1; got {keep_last}. Try 1.")
    found = checkpoints(run_folder)
    if complete is None:
        complete, skipped = newest(run_folder)
        damaged = {*damaged, *(each.folder for each in skipped)}
    if complete is None:
        return []
    counted = [step for step, folder in found.items() if folder not in damaged]
    oldest = min(counted[-keep_last:], default=0)
    kept = {step for step in found if step >= oldest or step == best or (keep_every and step % keep_every == 0)}
    failed: list[str] = []
    for folder in (folder for step, folder in found.items() if step not in kept and folder != complete):
        try:
            delete(folder)
        except OSError as error:
            failed.append(f"{folder} cannot be deleted: {error.strerror}. Delete it by hand.")
    return failed


def delete(folder: Path) -> None:
    """Delete a checkpoint. It is renamed first, so that a crash leaves no partial checkpoint under its name."""
    shutil.rmtree(folder.rename(beside(folder, "tmp")))


# The lock that lets only one process at a time train a run; the system drops it however the process ends.

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
