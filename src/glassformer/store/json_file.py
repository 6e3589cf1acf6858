"""Reading small untrusted files: only regular files of limited size, and only strict JSON."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.base.errors import CheckpointError
from glassformer.base.keys import refuse_repeated_keys

LARGEST = 32 * 2**20  # bytes; the vocabulary of a large tokenizer takes about 10 MiB
DEEPEST = 64
RESTORE = "Copy it again from its source, or use another checkpoint."


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return the value in a JSON file. Errors: `CheckpointError` for anything but plain, finite, unambiguous JSON."""
    return parse_json(read_text(path, largest), path)


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
        level = [inner for each in level if isinstance(each, dict | list) for inner in items(each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def items(value: dict[str, Any] | list[Any]) -> list[Any]:
    """Return the direct members of an object or a list."""
    return list(value.values()) if isinstance(value, dict) else value
