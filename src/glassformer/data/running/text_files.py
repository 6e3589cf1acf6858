"""The files of running text: list those of a folder, and open one, plain or gzip, watching for changes.

A text is read more than once (to measure it, to train a tokenizer, to make its tokens), so it must be a file that can
be read again, with the same content each time.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.data import lines
from glassformer.data.lines import Opened, no_such_file


class Stamp(NamedTuple):
    """The state of a file: another size or another time of the last change is another state."""

    path: str
    size: int
    changed: int
    """Nanoseconds."""


def text_files(path: str | Path) -> list[Path]:
    """The file, or all files of the folder and its subfolders, sorted by name, except hidden ones (".name").

    A file or folder that links make reachable in several ways is read once, where it is reached first. Errors:
    `DataError` for a folder that cannot be read or has no file, and for links without end.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = list(files_below(path, (path.resolve(),), {path.resolve()}))
    if not found:
        raise DataError(f"{path}: the folder has no file to read (hidden ones are not read). Give a folder with texts.")
    return found


def files_below(folder: Path, way: tuple[Path, ...], seen: set[Path]) -> Iterator[Path]:
    """Yield the files of a folder in sorted order, those of its subfolders in their place, except those in `seen`.

    `way`: the folders that led here, including this one; they and `seen`, to which more are added, have no links.
    """
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: the folder cannot be read ({error.strerror}). Give a readable folder.") from None
    for each in inside:
        is_folder = each.is_dir()
        # What is not a link has its real name from its folder's; `Path.resolve` raises for a link to itself.
        there = Path(os.path.realpath(each)) if each.is_symlink() else way[-1] / each.name
        if is_folder and any(passed.is_relative_to(there) for passed in way):
            raise DataError(f"{each} leads back to a folder that contains it, in an endless loop. Remove this link.")
        if there in seen:
            continue
        seen.add(there)
        if is_folder:
            yield from files_below(each, (*way, there), seen)
        else:
            yield each


def stamps(path: str | Path | None) -> tuple[Stamp, ...]:
    """The state of each file of a text; empty for the text that ships with Python. Errors: `DataError`."""
    return () if path is None else tuple(stamp_of(each, checked(each)) for each in text_files(path))


def checked(path: Path) -> os.stat_result:
    """The system's information about a file. Errors: `DataError` unless it is a file that can be read again."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the file cannot be read ({error}). Give a readable text file.") from None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(
            f"{path}: running text is read more than once, so it must be a file, but this is a pipe or a device. "
            "Write it to a file, and give that."
        )
    return found


def stamp_of(path: Path, found: os.stat_result) -> Stamp:
    """The state of a file, from the system's information about it."""
    return Stamp(str(path), found.st_size, found.st_mtime_ns)


@contextmanager
def opened(path: Path) -> Generator[Opened, None, None]:
    """Open a file for its bytes, unpacked.

    Errors: `DataError` for a file that cannot be read, and for one that changed before the block ended.
    """
    before = stamp_of(path, checked(path))
    with lines.opened(path) as file:
        yield file._replace(limit=math.inf)  # no more than a piece of it is kept
    if before != stamp_of(path, checked(path)):
        raise changed_while_read(path)


def changed_while_read(path: str | Path) -> DataError:
    """The error for a text that has changed since it was last looked at."""
    return DataError(
        f"{path} changed while it was read, so its parts may be of different versions. Wait until nothing writes to "
        "it, or give a copy of it."
    )
