"""Names in dictionaries: looked up with errors that suggest the most similar one, and refused twice in one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from glassformer.base.errors import ConfigError, some
from glassformer.base.typed import came

Entry = TypeVar("Entry")

MOST, FIRST = 40, 8
"""The most names that an error lists, and how many it lists of more than these."""


def lookup(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """Return the entry called `name`; `what` names the setting in the error.

    >>> lookup({"layer": 1, "rms": 2}, "rsm", "norm")
    Traceback (most recent call last):
        ...
    glassformer.base.errors.ConfigError: norm='rsm' is not known. Known: 'layer', 'rms'. Did you mean 'rms'?
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a user may give anything
        raise ConfigError(f"{what} must be a name; got {came(name)}. {suggestion('', table)}")
    if name in table:
        return table[name]
    raise ConfigError(f"{what}={name!r} is not known. {suggestion(name, table)}")


def one_of(known: Iterable[str], value: str, what: str) -> None:
    """Refuse an unknown name, suggesting the nearest known one."""
    lookup(dict.fromkeys(known), value, what)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The second half of the error message: the known names, or the first of very many, and the most similar one."""
    names = sorted({*known})
    text = f"Known: {some([*map(repr, names)], MOST if len(names) <= MOST else FIRST)}."
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"{text} Did you mean {nearest[0]!r}?" if nearest else text


# Refusing JSON objects with repeated keys, of which Python's reader would silently keep the last value.


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict from key-value pairs, as `object_pairs_hook` of `json`. Errors: `ValueError` for a repeated key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"key {twice[:60]!r} is given twice")
    return value
