"""Tests a learner's `causal_mask(n)` and `padding_mask(lengths, n)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.attend.mask import Mask
from glassformer.proof.check.attention import accepts
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
