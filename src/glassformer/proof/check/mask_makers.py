"""Tests functions that make masks and positions: causal, padding, packed documents."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.mask import Mask
from glassformer.proof.check.calling import accepts
from glassformer.proof.check.labels import KNOWN, Answered
from glassformer.proof.check.reading import Choice, Reading, aspect, read
from glassformer.proof.check.table import Fault, Mistake, Property, SignatureError, Subject, ask

N = 5
LENGTHS = torch.tensor([3, 5, 1])

INVERTED = Mistake(
    "the mask is inverted",
    "True stands where a key must not be read.",
    "Here True means 'may be read'. What must the first row look like?",
)
SELF = Mistake(
    "off by one: a query may not read itself",
    "The diagonal is False, so the first query may read nothing at all.",
    "May the token at position t read the token at position t?",
)
NEXT = Mistake(
    "off by one: a query may read the next token",
    "The diagonal above the main one is True, so each position sees the very token that it must predict.",
    "What is the last key that the first query may read?",
)
FUTURE = Mistake(
    "the mask is transposed: queries read the future",
    "Each query may read itself and what comes after it.",
    "Rows are queries. In which triangle do the keys before a query stand?",
)
OPEN = Mistake("the mask hides nothing", "Every entry is True.", "Which entries must be False?")
LONG = Mistake(
    "off by one: the first padding may be read",
    "Position `length` counts as real, though positions begin at 0.",
    "For a sequence of length 1, how many entries must be True?",
)
SHORT = Mistake(
    "off by one: the last token is hidden",
    "The last real position counts as padding.",
    "For a sequence of length 1, how many entries must be True?",
)
LEFT = Mistake(
    "padding is expected on the left",
    "The last positions count as real instead of the first ones.",
    "Where do the real tokens of a row stand?",
)
NUMBERS = Mistake(
    "the mask holds numbers instead of True and False",
    "Numbers are read by some code as 'may be read', by other code as something to add to the scores.",
    "What is the dtype of your mask?",
)
SHAPE = Mistake(
    "the mask has the wrong shape",
    "Its shape does not fit the scores.",
    "Rows are queries, columns are keys. How many of each are there?",
)
UNKNOWN = Mistake(
    "the mask is not the documented one",
    "It differs, and no mistake known here explains it.",
    "Print it for the smallest example that you can think of.",
)


class Made:
    """A mask made by a learner's function."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Any], shape: tuple[int, ...], ways: list[Choice]
    ) -> None:
        if not accepts(function, *["x"] * len(inputs)):
            raise SignatureError(f"{inspect.signature(function)}")
        self.made = ask(function, *inputs)
        self.shape = shape
        self.reading: Reading | None = None
        if fits(self):
            self.truth = truth(self.made).reshape(shape)
            self.reading = read(self.truth, {"mask": ways}, itself)


def itself(mask: Tensor) -> Tensor:
    """Return the mask: a choice of mask predicts itself."""
    return mask


def truth(mask: Tensor) -> Tensor:
    """Return a mask as booleans. If some numbers are very negative, those hide; otherwise zeros hide."""
    if mask.dtype == torch.bool:
        return mask
    return mask > -1e4 if bool((mask < -1e3).any()) else mask != 0


def fits(made: Made) -> bool:
    """Whether the result is a tensor of the documented shape, apart from axes of size 1."""
    return isinstance(made.made, Tensor) and made.made.squeeze().shape == torch.Size(made.shape)


def shape(made: Made) -> Fault | None:
    """Check that rows are queries and columns keys."""
    if fits(made):
        return None
    got = tuple(made.made.shape) if isinstance(made.made, Tensor) else type(made.made).__name__
    return Fault(SHAPE, f"It is {got} and must be {made.shape}, apart from axes of size 1.")


def boolean(made: Made) -> Fault | None:
    """Check that the mask holds True and False."""
    return None if made.made.dtype == torch.bool else Fault(NUMBERS, f"It is {made.made.dtype}.")


def known(made: Made) -> Fault | None:
    """Check that the mask is the documented one or a known mistake."""
    return (
        Fault(UNKNOWN, f"{int(made.truth.sum())} of {made.truth.numel()} entries are True.")
        if made.reading is None
        else None
    )


def causal_ways() -> list[Choice]:
    """Return causal masks, right and wrong."""
    wanted = Mask(causal=True).allowed(N, N, torch.device("cpu"))
    assert wanted is not None
    right, ones = wanted[0, 0], torch.ones(N, N, dtype=torch.bool)
    return [
        Choice(right),
        Choice(~right, "True above the diagonal", INVERTED),
        Choice(ones.tril(-1), "True below the diagonal alone", SELF),
        Choice(ones.tril(1), "True up to one above the diagonal", NEXT),
        Choice(ones.triu(0), "True on the diagonal and above it", FUTURE),
        Choice(ones.triu(2), "True from two above the diagonal", INVERTED),
        Choice(ones, "True everywhere", OPEN),
    ]


def padding_ways() -> list[Choice]:
    """Return padding masks, right and wrong."""
    place, lengths = torch.arange(N), LENGTHS[:, None]
    return [
        Choice(place < lengths),
        Choice(place >= lengths, "True at padding", INVERTED),
        Choice(place <= lengths, "True up to `length`", LONG),
        Choice(place < lengths - 1, "True up to `length - 2`", SHORT),
        Choice(place >= N - lengths, "True at the end", LEFT),
        Choice(torch.ones(len(LENGTHS), N, dtype=torch.bool), "True everywhere", OPEN),
    ]


def properties(law: str) -> tuple[Property, ...]:
    """Return the properties of a mask with this law."""
    return (
        Property("shape", "Its shape fits the scores.", shape),
        Property("boolean", "It holds True and False.", boolean, ("shape",)),
        Property("equation", "It is the documented one.", known, ("shape",)),
        Property("entries", law, aspect("mask"), ("equation",)),
    )


CAUSAL = Subject(
    lambda function: Made(function, (N,), (N, N), causal_ways()),
    properties("A query may read itself and what comes before it."),
)
PADDING = Subject(
    lambda function: Made(function, (LENGTHS, N), (len(LENGTHS), N), padding_ways()),
    properties("True stands at the first `length` positions of each row."),
)


KEEP = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]).bool()
DOCUMENTS = torch.tensor([[2, 2, 0, 0, 0, 1], [5, 3, 3, 3, 4, 4]])
"""The numbers neither rise nor fall along a row, so that comparing by order differs from comparing for equality."""

PADS_AS_PLACES = Mistake(
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
    Choice("places", "every place counted", PADS_AS_PLACES),
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
