"""Tests a learner's `position_ids(keep)` and `document_mask(documents)`, on rows with padding or several texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.attend.mask import Mask
from glassformer.proof.check.labels import KNOWN, Answered
from glassformer.proof.check.mask_makers import INVERTED, NEXT, OPEN, SELF, Made, properties
from glassformer.proof.check.reading import Choice, aspect
from glassformer.proof.check.table import Fault, Mistake, Property, Subject

KEEP = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]).bool()
DOCUMENTS = torch.tensor([[2, 2, 0, 0, 0, 1], [5, 3, 3, 3, 4, 4]])
"""The numbers neither rise nor fall along a row, so that comparing by order differs from comparing for equality."""

PADDING = Mistake(
    "padding is counted as positions",
    "A row with padding in front starts at another position than the same row alone, so its answer depends on the "
    "other rows of its batch.",
    "Which position must the first real token of a row have?",
)
FROM_ONE = Mistake(
    "positions are off by one",
    "The first real token gets position 1.",
    "How many real tokens stand before the first one?",
)
ALONG_BATCH = Mistake(
    "positions run along the batch",
    "The rows of the batch are counted instead of the tokens of a row.",
    "Along which axis of `keep` does your sum run?",
)
PADS_COUNTED = Mistake(
    "padding is counted instead of the tokens",
    "The mask is inverted: a token's position is the number of padding places before it.",
    "Where is `keep` True?",
)
NEGATIVE = Mistake(
    "padding gets a position that no table has",
    "Padding before the first token gets a negative position (or one past the length), on which an embedding fails.",
    "Nothing reads the vector at padding, but the position table is still indexed there. With which row?",
)
EACH_OTHER = Mistake(
    "documents read each other",
    "A query reads what came before it, whichever document that belongs to.",
    "What does the first token of the second document read?",
)
AHEAD = Mistake(
    "queries read the future",
    "Within its document, a query reads what comes after it too.",
    "Which two things must both be true before a key may be read?",
)
ORDERED = Mistake(
    "documents are compared by their order",
    "A query reads documents with a smaller (or larger) number, not its own alone.",
    "Which comparison says that two tokens belong to the same document?",
)
ONE_ROW = Mistake(
    "one row's documents are used for all",
    "Every row of the batch gets the mask of the first one.",
    "Which axes do queries, keys and batch have in your comparison?",
)


class Positions(Answered):
    """The learner's `position_ids`. Its numbers at padding are ignored."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.whole: Any = None

        def asked(keep: Tensor) -> Any:
            self.whole = function(keep)
            fits = isinstance(self.whole, Tensor) and self.whole.shape == KEEP.shape
            return torch.where(KEEP, self.whole.detach(), -1) if fits else self.whole

        super().__init__(asked, (KEEP,), {"count": COUNTS}, counted)


COUNTS = [
    Choice("tokens"),
    Choice("places", "every place counted", PADDING),
    Choice("from one", "a start at 1", FROM_ONE),
    Choice("batch", "a count along the batch", ALONG_BATCH),
    Choice("padding", "padding counted", PADS_COUNTED),
]


def counted(count: str) -> Tensor:
    """Return the positions of the real tokens under a reading."""
    found = {
        "tokens": KEEP.cumsum(1) - 1,
        "places": torch.arange(KEEP.shape[1]).expand(KEEP.shape),
        "from one": KEEP.cumsum(1),
        "batch": KEEP.cumsum(0) - 1,
        "padding": (~KEEP).cumsum(1),
    }[count]
    return torch.where(KEEP, found, -1)


def in_table(learner: Positions) -> Fault | None:
    """Check that padding, too, has a position that exists in a table."""
    low, high = int(learner.whole.min()), int(learner.whole.max())
    if low >= 0 and high < KEEP.shape[1]:
        return None
    return Fault(NEGATIVE, f"For rows of {KEEP.shape[1]} they go from {low} to {high}.")


def document_ways() -> list[Choice]:
    """Return masks over packed documents, right and wrong."""
    rows, T = DOCUMENTS.shape
    wanted = Mask(causal=True, documents=DOCUMENTS).allowed(T, T, torch.device("cpu"))
    assert wanted is not None
    right, ones = wanted[:, 0], torch.ones(rows, T, T, dtype=torch.bool)
    queries, keys = DOCUMENTS[:, :, None], DOCUMENTS[:, None, :]
    same, back = queries == keys, ones.tril()
    return [
        Choice(right),
        Choice(~right, "True where nothing may be read", INVERTED),
        Choice(back, "a causal mask alone", EACH_OTHER),
        Choice(same, "the document alone", AHEAD),
        Choice(same & ones.tril(-1), "the diagonal cut out", SELF),
        Choice(same & ones.tril(1), "one more key ahead", NEXT),
        Choice(back & (queries >= keys), "smaller numbers open too", ORDERED),
        Choice(back & (queries <= keys), "larger numbers open too", ORDERED),
        Choice(right[:1].expand(rows, -1, -1), "the mask of row 0 in each row", ONE_ROW),
        Choice(ones, "True everywhere", OPEN),
    ]


POSITION_IDS = Subject(
    Positions,
    (
        KNOWN,
        Property("count", "A token's position is the number of real tokens before it.", aspect("count"), ("equation",)),
        Property("in-table", "Padding has a position that a table holds.", in_table, ("count",)),
    ),
)
DOCUMENT_MASK = Subject(
    lambda function: Made(
        function, (DOCUMENTS,), (len(DOCUMENTS), DOCUMENTS.shape[1], DOCUMENTS.shape[1]), document_ways()
    ),
    properties("In its own document, a query may read itself and what comes before it."),
)
