"""A folder that appears whole or not at all, and replaces an older one of its name without a moment without either."""

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
    """A new folder to fill; when the block ends without an error it is fsynced and becomes `target`.

    `needed` (bytes) is for the message when there is no room. The files put into the folder must be fsynced by
    whoever writes them. Whatever goes wrong, an older `target` is as it was, and the new folder is gone.
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
        sync_folder(target.parent)  # before the old one is deleted: the disk always has one of them
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)  # what resists is a leftover, removed at the next save


def put_in_place(staging: Path, target: Path) -> Path | None:
    """Give the finished folder its name. Returns where the folder that had the name lies now, if there was one."""
    if not target.exists():
        staging.rename(target)
        return None
    if exchange(staging, target):
        return staging
    aside = beside(target, "old")
    target.rename(aside)
    try:  # until the next line is done, `displaced` finds the old one under its other name
        staging.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    return aside


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step, renameat2(2) with RENAME_EXCHANGE. False where system or file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0
