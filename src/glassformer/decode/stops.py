"""Where the first stop text stands in a text; of the text in characters, or in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import AnyStr


def stop_in(text: AnyStr, stops: Sequence[AnyStr]) -> int | None:
    """Where the stop text begins that is complete first, so that it does not matter how the text comes; or None."""
    found = [(at + len(each), at) for each in stops if (at := text.find(each)) >= 0]
    return min(found)[1] if found else None
