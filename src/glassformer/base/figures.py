"""Importing matplotlib only when needed, and checking where a picture may be written."""

from __future__ import annotations

import unicodedata
from importlib import import_module
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError, install

KINDS = (".png", ".svg", ".pdf")
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "glassformer", "pdf.fonttype": 42}
"""Text stays text in the file, and equal figures give equal files."""
DATED = {".svg": "Date", ".pdf": "CreationDate"}
"""The metadata field of each file type that would hold its creation time."""


MOST_LETTERS = 60


def as_label(name: str, most: int = MOST_LETTERS) -> str:
    r"""Write a name for a picture, on one line: control characters as escapes, and the middle of a long name as "…".

    >>> as_label("a\tb" + 200 * "c", most=9)
    'a\\tb…cccc'
    """
    shown = "".join(
        each.encode("unicode_escape").decode("ascii")
        if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
        else each
        for each in name
    )
    half = most // 2
    return shown if len(shown) <= most else f"{shown[: most - half - 1]}…{shown[-half:]}"


def matplotlib(name: str) -> Any:
    """Import a module of matplotlib. Errors: `ConfigError` with the remedy if it is not installed."""
    try:
        return import_module(f"matplotlib.{name}")
    except ImportError:
        raise ConfigError(
            f"Pictures need matplotlib, which is not installed here. Run {install('plot')}, then the same command "
            "again."
        ) from None


def check_picture(path: Path | str) -> Path:
    """Check the path of a picture to write. Errors: `ConfigError` for an unknown file type or an impossible place."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ConfigError(
            f"The name of a picture must end in .png, .svg or .pdf; got {str(path)!r}. "
            f"Try {path.stem or 'picture'}.png."
        )
    if not path.parent.is_dir() or path.is_dir():
        why = "is a folder" if path.is_dir() else f"would be in {path.parent}, which is not an existing folder"
        raise ConfigError(f"A picture must be a file in an existing folder, but {path} {why}. Give another path.")
    return path
