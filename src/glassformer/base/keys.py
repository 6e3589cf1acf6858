"""Refusing JSON objects with repeated keys, of which Python's reader would silently keep the last value."""

from __future__ import annotations

from typing import Any


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict from key-value pairs, as `object_pairs_hook` of `json`. Errors: `ValueError` for a repeated key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)[:60]!r} is given twice")
    return value
