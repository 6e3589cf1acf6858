"""Leftovers of a process that died while writing: how they are named, found, moved back or removed.

While a file or folder NAME is unfinished, it is called `.tmp-NAME-PID`. Where the system cannot swap two folders in
one step, the replaced one is called `.old-NAME-PID` for a moment. PID is the process that wrote it.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
