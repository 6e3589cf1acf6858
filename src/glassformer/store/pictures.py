"""Saving pictures: like every file, atomically, so that a crash leaves the old picture or the new one."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from glassformer.base.figures import DATED, SETTINGS, check_picture
from glassformer.store.files import write_bytes


def save_figure(figure: Any, path: Path | str) -> Path:
    """Write a matplotlib figure in the format of the file name (.png, .svg or .pdf), replacing an existing file.

    Errors: `ConfigError`, see `check_picture`; those of `write_bytes`.
    """
    path = check_picture(path)
    kind, drawn = path.suffix.lower(), BytesIO()
    with import_module("matplotlib").rc_context(SETTINGS):
        figure.savefig(drawn, format=kind[1:], dpi=150, metadata={DATED[kind]: None} if kind in DATED else None)
    write_bytes(path, drawn.getvalue())
    return path
