"""Detect a first line that names the columns although nobody said so: it would be learned as a text with a label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.data.pairs import Pair

TEXTS = ("text", "texts", "sentence", "sentences", "document", "content", "review", "comment", "message", "question")
LABELS = ("label", "labels", "class", "category", "target", "tag", "sentiment", "intent", "topic")
"""Usual names of the columns."""
OFTEN = 5
"""If each other label has this many texts, a label that only the first line has is probably the name of a column."""
UNSAID = "If line 1 names the columns, set data.header = true."


def refuse_unsaid_header(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text whose first line, the first of `pairs`, seems to name the columns.

    It does if no other line has its label and, besides, it has a usual name or every other label is frequent. A text
    can look like that, so the user must say which it is. Errors: `DataError`.
    """
    text, label = pairs[0]
    counts = Counter(pair.target for pair in pairs)
    if counts.pop(label) > 1:
        return
    usual = text.strip().casefold() in TEXTS or label.casefold() in LABELS
    if usual or (counts and min(counts.values()) >= OFTEN):
        raise DataError(
            f"{path}:1: the first line seems to name the columns, but would be learned as the text {text[:40]!r} with "
            f"the label {label[:40]!r}, which no other line has. Set data.header = true if it names the columns, or "
            "data.header = false if it is a text."
        )
