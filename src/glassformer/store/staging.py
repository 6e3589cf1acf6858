"""Writing a folder atomically: it appears complete or not at all, and the disk always has it or the one it replaces."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from glassformer.store.files import explained, make_folder, only_writer, sync_folder
from glassformer.store.leftovers import absolute, beside, remove_leftovers

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
