"""The folder for files that can be made again: $GLASSFORMER_CACHE, else $XDG_CACHE_HOME/glassformer or ~/.cache/..."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from glassformer.base.errors import ConfigError, ResourceError

OUT_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
VARIABLE = "GLASSFORMER_CACHE"


def cache_folder() -> Path:
    """The folder for files that can be made again; deleting it costs only time."""
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "glassformer"


def unwritable(folder: Path, error: Exception) -> ConfigError | ResourceError:
    """The error for a place in the cache that cannot be written: a full disk, or a folder that must be another one."""
    other = f"set {VARIABLE} to a folder that you can write to."
    if isinstance(error, OSError) and error.errno in OUT_OF_DISK:
        return ResourceError(f"{folder} cannot be written: {error}. Free some space there, or {other}")
    return ConfigError(f"{folder} cannot be written: {error}. Check who may write there, or {other}")
