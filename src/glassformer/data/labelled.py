r"""Read texts with a label each from a file, plain or gzip. Nothing is silently dropped.

TSV (any name), CSV (.csv)    a good film\t1         columns by number, or by name if the first line names them
JSON (.jsonl, .ndjson, ...)   {"text": "a good film", "label": 1}, one on each line, or an array of such objects
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.data.pairs import Loaded, Pair, Sides, may_be_header, read_sides
from glassformer.data.rows import Columns, not_in_training, seems_header

LOG = logging.getLogger(__name__)
TEXT_AND_LABEL = Sides(("text", "label"), ("data.text_column", "data.label_column"), labels=True)


def read_labelled(
    path: str | Path, columns: Columns | None = None, skip_empty: bool = False, known: Collection[str] | None = None
) -> Loaded:
    """Read the texts and labels of a file as pairs. `known`: the labels that are allowed; None: any.

    Errors: as `read_pairs`, and for a label outside the set or of another type than before.
    """
    columns = columns or Columns()
    loaded = read_sides(path, TEXT_AND_LABEL, columns, skip_empty)
    unsaid = may_be_header(loaded, columns)
    for row, pair in enumerate(loaded.pairs):
        _check_label(loaded, row, pair.target, known, unsaid=unsaid and row == 0)
    if unsaid and known is None:
        _refuse_unsaid_header(path, loaded.pairs)
    return loaded


def refuse_one_class(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text with only one label: there is nothing to learn."""
    first = pairs[0].target
    if all(pair.target == first for pair in pairs):
        raise DataError(
            f"{path}: a classifier needs at least two labels, but all {len(pairs)} lines have {first[:40]!r}. "
            "Add texts with another label, or set data.label_column to the right column."
        )


# --- labels


BREAKS = ("Cc", "Zl", "Zp")
"""Unicode's categories of control characters and line ends."""


def _check_label(loaded: Loaded, row: int, label: str, known: Collection[str] | None, *, unsaid: bool) -> None:
    """Refuse a label with white space around it, which looks like another one, and a label outside the set.

    Also refuse a label with a line end or a TAB: labels are written one per line, and with their probabilities in
    columns. `unsaid`: nobody said whether this line names the columns.
    """
    place = str(loaded.origin and loaded.origin.place(row, "source"))
    if label != label.strip():
        raise DataError(
            f"{place}: the label {label[:40]!r} has white space around it, which would make it a different label. "
            "Remove the white space."
        )
    broken = next((each for each in label if unicodedata.category(each) in BREAKS), None)
    if broken is not None:
        raise DataError(
            f"{place}: a label is one line of text, but {label[:40]!r} contains {broken!r}, a line end, a TAB or "
            "another control character. Remove it."
        )
    if known is not None and label not in known:
        hint = "it. If line 1 names the columns, set data.header = true." if unsaid else "it."
        raise not_in_training(place, "label", label, known, hint)


# --- a first line that names the columns, although nobody said so

TEXTS = ("text", "texts", "sentence", "sentences", "document", "content", "review", "comment", "message", "question")
LABELS = ("label", "labels", "class", "category", "target", "tag", "sentiment", "intent", "topic")
"""Usual names of the columns."""
OFTEN = 5
"""If each other label has this many texts, a label that only the first line has is probably the name of a column."""
FEW = 3
"""If all other labels are numbers, and these are at least so many lines, a first label that is none is such a name."""


def _refuse_unsaid_header(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text whose first line, the first of `pairs`, seems to name the columns.

    It does if no other line has its label and, besides, it has a usual name, or every other label is frequent or a
    number. A text can look like that, so the user must say which it is. If the others are only met more than once, that
    is noted.
    """
    text, label = pairs[0]
    counts = Counter(pair.target for pair in pairs)
    if counts.pop(label) > 1:
        return
    usual = text.strip().casefold() in TEXTS or label.casefold() in LABELS
    fewest = min(counts.values(), default=0)
    numbered = sum(counts.values()) >= FEW and not label.isdecimal() and all(each.isdecimal() for each in counts)
    if usual or fewest >= OFTEN or numbered:
        raise seems_header(
            f"{path}:1", f"the text {text[:40]!r} with the label {label[:40]!r}, which no other line has", "text"
        )
    if fewest > 1:
        LOG.info(
            f"{path}:1: only the first line has the label {label[:40]!r}. If it names the columns, set data.header = "
            "true; data.header = false if it is a text."
        )
