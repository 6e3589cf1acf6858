"""The folder for files that can be made again: $GLASSFORMER_CACHE, else $XDG_CACHE_HOME/glassformer or ~/.cache/..."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "GLASSFORMER_CACHE"


def cache_folder() -> Path:
    """The folder for files that can be made again; deleting it costs only time."""
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "glassformer"
