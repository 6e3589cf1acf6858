"""Tests a learner's `shift_labels(tokens)` and `shift_right(labels, start_id)`: what is read, and what is predicted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.labels import KNOWN, Answered
from glassformer.proof.check.reading import Choice, aspect
from glassformer.proof.check.table import Mistake, Property, SignatureError, Subject, ask

TOKENS = torch.tensor([[5, 9, 2, 7, 4, 8], [3, 1, 6, 2, 9, 5]])

UNSHIFTED = Mistake(
    "labels are not shifted",
    "Each position must predict the token that it reads, so the model learns to copy its input.",
    "What does a language model read at position t, and what must it predict?",
)
TWICE = Mistake(
    "labels are shifted twice",
    "Each position must predict the token after the next.",
    "Count every place between file and loss at which something moves by one.",
)
BACKWARDS = Mistake(
    "labels are shifted the wrong way",
    "Each position must predict the token before it, which it has read already.",
    "Of the two ends of the sequence, which one is cut from the labels?",
)
UNCUT = Mistake(
    "the inputs keep their last token",
    "The last token has nothing after it, so inputs and labels differ in length.",
    "Of the two ends of the sequence, which one is cut from the inputs?",
)
UNMOVED = Mistake(
    "the decoder reads the token that it must predict",
    "Labels go in as they are, so each position copies its input, and at the first step of decoding nothing is known.",
    "When the decoder predicts the first label, what has it read?",
)
AHEAD = Mistake(
    "labels are shifted the wrong way",
    "Each position reads the token after the one that it must predict.",
    "Which neighbour of a label has been written when the label must be predicted?",
)
OTHER_START = Mistake(
    "decoding starts from another token than training",
    "In training the decoder begins with another token than start_id, so at the first step of decoding it reads what "
    "it never saw there, and repeats itself.",
    "Which token stands first in training, and which one does your decoding begin with?",
)
NOT_CUT = Mistake(
    "the last label is kept",
    "There is one input more than there are labels.",
    "Is there anything to predict after the last label?",
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
    """The learner's `shift_labels`. A pair is compared as one tensor of both."""

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
    """Return inputs and labels, each a slice of the tokens."""
    return joined(TOKENS[:, shift[0]], TOKENS[:, shift[1]])


def one_side(shift: Any) -> Tensor:
    """Return only the labels."""
    return TOKENS[:, shift]


def joined(inputs: Tensor, labels: Tensor) -> Tensor:
    """Return both side by side, with -1 in between, so that a column missing in one cannot be made up by the other."""
    between = torch.full((inputs.shape[0], 1), -1, dtype=inputs.dtype)
    return torch.cat([inputs, between, labels.to(inputs.dtype)], 1)


SHIFT = Subject(
    Shift, (KNOWN, Property("shift", "Label t is the token after input t.", aspect("shift"), ("equation",)))
)

START = 11
RIGHT = [
    Choice("right"),
    Choice("unmoved", "the labels themselves", UNMOVED),
    Choice("ahead", "labels one ahead", AHEAD),
    Choice("rolled", "the last label in front", OTHER_START),
    Choice("zero", "0 in front", OTHER_START),
    Choice("last id", "the last label's id in front of every row", OTHER_START),
    Choice("first twice", "the first label twice", OTHER_START),
    Choice("kept", "start_id and all labels", NOT_CUT),
]


def moved(shift: str) -> Tensor:
    """Return the decoder's input under a reading."""
    front, most = torch.full((len(TOKENS), 1), START), TOKENS[:, :-1]
    return {
        "right": torch.cat([front, most], 1),
        "unmoved": TOKENS,
        "ahead": torch.cat([TOKENS[:, 1:], front], 1),
        "rolled": TOKENS.roll(1, 1),
        "zero": torch.cat([front * 0, most], 1),
        "last id": torch.cat([front * 0 + TOKENS[0, -1], most], 1),
        "first twice": torch.cat([TOKENS[:, :1], most], 1),
        "kept": torch.cat([front, TOKENS], 1),
    }[shift]


SHIFT_RIGHT = Subject(
    lambda function: Answered(function, (TOKENS, START), {"shift": RIGHT}, moved),
    (
        KNOWN,
        Property("shift", "Input 0 is start_id, input t + 1 is label t.", aspect("shift"), ("equation",)),
    ),
)
