"""Where the first stop text stands in a text, and how a search hears of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Cut = Callable[[int, Sequence[int]], str | None]
"""A stop of a search. Called with a row's place in the call and the ids of a text in it; returns the text before the
stop if these ids end there, else None."""


def stop_in(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop text begins that is complete first, so that it does not matter how the text comes; or None."""
    found = [(at + len(each), at) for each in stops if (at := text.find(each)) >= 0]
    return min(found)[1] if found else None
