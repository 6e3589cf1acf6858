"""A learner's `shift_labels(tokens)`, probed: which token each position is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from glassformer.foundation.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.labels import KNOWN, Answered
from glassformer.proof.check.reading import Choice, aspect
from glassformer.proof.check.table import Mistake, Property, SignatureError, Subject, ask

TOKENS = torch.tensor([[5, 9, 2, 7, 4, 8], [3, 1, 6, 2, 9, 5]])

UNSHIFTED = Mistake(
    "labels are not shifted",
    "Each position is asked for the token that it reads, so the model learns to copy its input.",
    "What does a language model read at position t, and what must it say?",
)
TWICE = Mistake(
    "labels are shifted twice",
    "Each position is asked for the token after the next.",
    "Count every place between file and loss at which something moves by one.",
)
BACKWARDS = Mistake(
    "labels are shifted the wrong way",
    "Each position is asked for the token before it, which it has read already.",
    "Of the two ends of the sequence, which one is cut from the labels?",
)
UNCUT = Mistake(
    "the inputs keep their last token",
    "The last token has nothing after it, so inputs and labels differ in length.",
    "Of the two ends of the sequence, which one is cut from the inputs?",
)
SHIFTS = [
    Choice((slice(0, -1), slice(1, None))),
    Choice((slice(0, -1), slice(0, -1)), "labels equal to the inputs", UNSHIFTED),
    Choice((slice(None), slice(None)), "labels equal to the inputs", UNSHIFTED),
    Choice((slice(1, None), slice(1, None)), "labels equal to the inputs", UNSHIFTED),
    Choice((slice(0, -2), slice(2, None)), "labels two ahead", TWICE),
    Choice((slice(0, -1), slice(2, None)), "labels two ahead", TWICE),
    Choice((slice(1, None), slice(0, -1)), "labels one behind", BACKWARDS),
    Choice((slice(None), slice(1, None)), "all the inputs", UNCUT),
]
ALONE = [
    Choice(slice(1, None)),
    Choice(slice(0, -1), "the inputs as labels", UNSHIFTED),
    Choice(slice(None), "the inputs as labels", UNSHIFTED),
    Choice(slice(2, None), "labels two ahead", TWICE),
]


class Shift(Answered):
    """`shift_labels`: a pair is compared as one tensor of both."""

    def __init__(self, function: Callable[..., Any]) -> None:
        pair = False

        def asked(tokens: Tensor) -> Any:
            nonlocal pair
            answer = function(tokens)
            pair = isinstance(answer, tuple | list) and len(answer) == 2
            return joined(*answer) if pair and all(isinstance(each, Tensor) for each in answer) else answer

        if not accepts(function, "tokens"):
            raise SignatureError(f"{inspect.signature(function)}")
        ask(asked, TOKENS)
        if pair:
            super().__init__(asked, (TOKENS,), {"shift": SHIFTS}, both_sides)
        else:
            super().__init__(asked, (TOKENS,), {"shift": ALONE}, one_side)


def both_sides(shift: Any) -> Tensor:
    """Inputs and labels, each the tokens at their own places."""
    return joined(TOKENS[:, shift[0]], TOKENS[:, shift[1]])


def one_side(shift: Any) -> Tensor:
    """Labels alone."""
    return TOKENS[:, shift]


def joined(inputs: Tensor, labels: Tensor) -> Tensor:
    """Both side by side, with -1 between them, so that neither can lend to the other."""
    between = torch.full((inputs.shape[0], 1), -1, dtype=inputs.dtype)
    return torch.cat([inputs, between, labels.to(inputs.dtype)], 1)


SHIFT = Subject(
    Shift, (KNOWN, Property("shift", "Label t is the token after input t.", aspect("shift"), ("equation",)))
)
