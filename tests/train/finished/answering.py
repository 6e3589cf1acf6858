"""Lines for a run that answers, and how it does."""

from pathlib import Path

from glassformer.store.checkpoint import load

LINES = ["a b c", "e", "d d d d", "x a y", "b a"]
LAYOUTS = ["encoder-decoder", "encoder"]


def layout_of(run: Path) -> str:
    return LAYOUTS[load(run).model.decoder is None]


def numbered(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, start=1))
