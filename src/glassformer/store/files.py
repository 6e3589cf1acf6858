"""Files on disk: writing is atomic and loses nothing, reading trusts nothing.

A crash, a kill or a full disk leaves the old content or the new, never a mixture or a part. The steps, in order: write
under another name, fsync the bytes, rename, fsync the folder that holds the name.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.base.registry import refuse_repeated_keys

# Leftovers of a process that died while writing: how they are named, found, moved back or removed.

LEFTOVER = re.compile(r"\.(tmp|old)-(.+)-([0-9]{1,10})")

in_progress: set[Path] = set()
"""The targets that this process is writing now, so that no thread takes another's staging folder for a leftover."""


class Leftover(NamedTuple):
    """One leftover file or folder: its path, its kind ("tmp" or "old"), the path it belongs at, and its writer."""

    path: Path
    kind: str
    home: Path
    pid: int


def absolute(path: Path) -> Path:
    """Return `path` as absolute, with links and `..` above its name resolved, so that `parent` and `name` are true."""
    whole = path.name in ("", "..")
    return Path(os.path.realpath(path)) if whole else Path(os.path.realpath(path.parent), path.name)


def beside(path: Path, kind: str) -> Path:
    """Return this process's temporary name for `path`, of kind "tmp" (unfinished) or "old" (replaced)."""
    return path.with_name(f".{kind}-{path.name}-{os.getpid()}")


def displaced(target: Path) -> Path | None:
    """Return where the folder `target` is if a process died between the two renames that replace it, else None."""
    if target.exists():
        return None
    return next((each.path for each in leftovers(target.parent) if each.kind == "old" and each.home == target), None)


def leftovers(folder: Path) -> list[Leftover]:
    """Return everything in `folder` that is named like a leftover, including that of processes that still run."""
    if not folder.is_dir():
        return []
    found: list[Leftover] = []
    for path in sorted(folder.iterdir()):
        match = LEFTOVER.fullmatch(path.name)
        if match and not path.is_symlink():
            found.append(Leftover(path, match[1], path.with_name(match[2]), int(match[3])))
    return found


def remove_leftovers(target: Path) -> None:
    """Clean up after processes that died while they wrote `target` or a sibling of its `family` (step-1, step-2, …).

    A folder that was moved aside is moved back if its place is empty: it is the only complete one of its name.
    """
    for path, kind, home, pid in leftovers(target.parent):
        busy = home != target and home in in_progress
        if family(home.name) != family(target.name) or busy or alive(pid):
            continue
        if kind == "old" and not home.exists():
            path.rename(home)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def family(name: str) -> str:
    """Return a name with its numbers masked: names that differ only in numbers belong together."""
    return re.sub(r"\d+", "#", name)


def alive(pid: int) -> bool:
    """Whether another process of this number runs. Our own number counts as dead: containers reuse numbers from 1."""
    if pid == os.getpid():
        return False
    if os.name == "nt":
        return True  # there os.kill(pid, 0) would end the process, so leftovers of others are never removed
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # it runs, under another user
    except (ProcessLookupError, OverflowError):
        return False
    return True


# Atomic writes: a crash, a kill or a full disk leaves the old content or the new, never a mixture or a part.

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


# Writing a folder atomically: it appears complete or not at all, and the disk always has it or the one it replaces.

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@contextmanager
def staged_folder(target: Path, needed: int) -> Generator[Path, None, None]:
    """Yield a new folder to fill; when the block ends without an error, the folder is fsynced and becomes `target`.

    `needed` (bytes) is for the error message if there is no room. The caller must fsync the files it puts into the
    folder. If anything fails, an older `target` stays as it was and the new folder is deleted.
    """
    target = absolute(target)
    staging = beside(target, "tmp")
    with explained(target, needed), only_writer(target):
        make_folder(target.parent)
        remove_leftovers(target)
        try:
            staging.mkdir()
            yield staging
            sync_folder(staging)
            replaced = put_in_place(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        sync_folder(target.parent)  # before the old folder is deleted: the disk must always have one of the two
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)  # what cannot be deleted now, the next save removes


def put_in_place(staging: Path, target: Path) -> Path | None:
    """Rename the finished folder to `target`. Returns the new path of the folder that had that name, if any."""
    if not target.exists():
        staging.rename(target)
        return None
    if exchange(staging, target):
        return staging
    aside = beside(target, "old")
    target.rename(aside)
    try:  # until the next rename is done, `displaced` finds the old folder under its other name
        staging.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    return aside


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step by renameat2(2) with RENAME_EXCHANGE. Returns False if that is unsupported."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0


# Reading small untrusted files: only regular files of limited size, and only strict JSON.

LARGEST = 32 * 2**20  # bytes; the vocabulary of a large tokenizer takes about 10 MiB
DEEPEST = 64
RESTORE = "Copy it again from its source, or use another checkpoint."


def read_json(path: Path) -> Any:
    """Return the value in a JSON file. Errors: `CheckpointError` for anything but plain, finite, unambiguous JSON."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path) -> Any:
    """Parse `text`, the content of `path`; see `read_json`."""
    try:
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_repeated_keys)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CheckpointError(f"{path} is not JSON that can be read: {reason}. {RESTORE}") from error
    if deeper_than(value, DEEPEST):
        raise CheckpointError(
            f"{path} is nested more than {DEEPEST} levels deep, which no file of glassformer is. {RESTORE}"
        )
    return value


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a regular UTF-8 file of at most `largest` bytes. Errors: `CheckpointError`."""
    size = regular_size(path)
    if size > largest:
        raise CheckpointError(f"{path} has {size:,} bytes; at most {largest:,} are read. {RESTORE}")
    with readable(path), open(path, "rb", opener=without_links) as file:
        data = file.read(largest)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 at byte {error.start}. {RESTORE}") from error


def regular_size(path: Path) -> int:
    """Return the size in bytes of a regular file; refuse a link, folder, pipe or device before opening it."""
    with readable(path):
        status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} must be a regular file, but is a link, folder, pipe or device. {RESTORE}")
    return status.st_size


def followed(path: Path) -> Path:
    """Return the file at `path`; if that is a link in a snapshot of the hub's cache, the file in the cache.

    Errors: `CheckpointError` for any other link, and for one that leads out of the cache folder of its model.
    """
    if not path.is_symlink():
        return path
    found, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    if folder.parent.name != "snapshots" or folder.parent.parent not in found.parents:
        raise CheckpointError(
            f"A link is followed from a snapshot of the hub's cache, MODEL/snapshots/ID, to a file in MODEL; {path} "
            f"leads to {found}. If that is what you want, copy what the links point to: cp -rL {path.parent} NEW"
        )
    return found


def without_links(path: str, flags: int) -> int:
    """Open a file, but not through a link that replaced it after `regular_size` looked."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


@contextmanager
def readable(path: Path) -> Generator[None, None, None]:
    """Turn system errors while `path` is read into a `CheckpointError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing. {RESTORE}") from error
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}. Check that you may read it."
        ) from error


def refuse_constant(name: str) -> Any:
    """Raise `ValueError` for NaN and Infinity, which JSON does not allow."""
    raise ValueError(f"{name} is not a JSON number")


def deeper_than(value: Any, limit: int) -> bool:
    """Whether lists and objects are nested more than `limit` deep; a loop, as recursion could exhaust the stack."""
    level = [value]
    for _ in range(limit):
        nested = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [*chain.from_iterable(nested)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)
