"""What a table of a learner's parts is made of: right code in one style, and the mistakes planted in it."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """Right code of one kind in one style. A row planted: the name that must be given, then pairs (text, instead)."""

    kind: str
    style: str
    text: str
    planted: list[tuple[str, ...]] = []  # noqa: RUF012
