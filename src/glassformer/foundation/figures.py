"""Pictures by matplotlib, which is imported when one is drawn, and where they may be written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from glassformer.foundation.errors import ConfigError

KINDS = (".png", ".svg", ".pdf")
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "glassformer", "pdf.fonttype": 42}
"""Text stays text, and equal figures give equal files."""
DATED = {".svg": "Date", ".pdf": "CreationDate"}
"""Where a file would say when it was made."""


def matplotlib(name: str) -> Any:
    """A module of matplotlib. Errors: `ConfigError` with the remedy where it is not installed."""
    try:
        return import_module(f"matplotlib.{name}")
    except ImportError:
        raise ConfigError("Pictures need matplotlib: pip install 'glassformer[plot]', then the same command.") from None


def check_picture(path: Path | str) -> Path:
    """The path of a picture to write. Errors: `ConfigError` for a kind that there is not, and where no file can be."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ConfigError(
            f"A picture is named .png, .svg or .pdf; got {str(path)!r}. Try {path.stem or 'picture'}.png."
        )
    if not path.parent.is_dir() or path.is_dir():
        why = "is a folder" if path.is_dir() else f"would lie in {path.parent}, which is no folder"
        raise ConfigError(f"A picture is written to a file in a folder that is there; {path} {why}. Name another.")
    return path
