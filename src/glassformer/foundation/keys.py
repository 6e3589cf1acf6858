"""JSON objects in which each key stands once; of two values Python's reader would keep the last, in silence."""

from __future__ import annotations

from typing import Any


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key given twice means one thing to one reader and another to the next."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)[:60]!r} is given twice")
    return value
