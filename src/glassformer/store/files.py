"""Atomic writes: a crash, a kill or a full disk leaves the old content or the new, never a mixture or a part.

The steps, in order: write under another name, fsync the bytes, rename, fsync the folder that holds the name.
A rename is atomic; without the first fsync, the name may reach the disk before the bytes do.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store.leftovers import absolute, beside, in_progress, remove_leftovers

FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the limit on the size of a file is reached",
}
"""The system errors that mean that there is no room, and their reasons."""
ROOM = {errno.EFBIG: "Raise the limit (`ulimit -f`)."}
"""Advice for errors that free space does not solve."""


def write_text_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, otherwise unchanged; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, durably and atomically; readers see the old content or the new.

    Errors: `ResourceError` if there is no room, `CheckpointError` if the folder cannot be written. Both leave the old
    content unchanged.
    """
    path = absolute(path)
    staged = beside(path, "tmp")
    with explained(path, len(data)), only_writer(path):
        make_folder(path.parent)
        remove_leftovers(path)
        try:
            write_new(staged, data)
            staged.replace(path)
        except BaseException:
            with suppress(OSError):
                staged.unlink()
            raise
        sync_folder(path.parent)


def refuse_unnamable(path: Path) -> None:
    """Raise `CheckpointError` for a path that UTF-8 cannot encode: the library for the weights needs UTF-8 paths."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"The path of a run or a checkpoint must be valid UTF-8; got {str(path)!r}, which is not at character "
            f"{error.start + 1}. Choose another name, or rename the folder: mv OLD NEW."
        ) from error


def write_new(path: Path, data: bytes) -> None:
    """Create `path`, which must not exist, write `data` to it and fsync it."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, durably. An existing folder is left alone."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Fsync the bytes of `path`, which safetensors does not do."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Fsync the names in `folder`. Windows has no such call; its renames are journalled."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


claiming = Lock()
"""Held while a thread looks whether it is the only one."""


@contextmanager
def only_writer(target: Path) -> Generator[None, None, None]:
    """Refuse a second thread that writes the same target; `RunLock` keeps two processes apart."""
    with claiming:
        if target in in_progress:
            raise CheckpointError(
                f"Only one thread may write a file or folder at a time; another is writing {target}. Wait until it has "
                "finished."
            )
        in_progress.add(target)
    try:
        yield
    finally:
        in_progress.discard(target)


@contextmanager
def explained(path: Path, needed: int) -> Generator[None, None, None]:
    """Turn system errors while `path` is written into messages that a user can act on; `needed` is in bytes."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise ResourceError(no_room(path, needed, error)) from error
        raise CheckpointError(
            f"{path} cannot be written: {error.strerror or error}. Files that were complete are unchanged. Check that "
            "you may write in the folder and that it is not read-only, or choose another folder."
        ) from error


def no_room(path: Path, needed: int, error: OSError) -> str:
    """Return the message for a full disk, a used-up quota or a limit on file sizes."""
    free = free_bytes(path.parent)
    room = "unknown" if free is None else f"{free:,} bytes"
    return (
        f"{path} cannot be written: {FULL[error.errno or errno.ENOSPC]} ({error.strerror}). Needed: {needed:,} bytes; "
        f"free: {room}. Files that were complete are unchanged. "
        f"{ROOM.get(error.errno or 0, 'Free some space, or keep fewer checkpoints (--checkpoint.keep).')}"
    )


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on the disk of `folder`, which may not exist yet, or None if the system does not say."""
    for each in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(each).free
    return None
