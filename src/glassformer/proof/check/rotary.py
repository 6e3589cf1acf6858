"""Tests a learner's `apply_rotary(x, positions)`: which numbers are rotated together, how far, and which way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.labels import KNOWN, Answered
from glassformer.proof.check.reading import Choice, aspect, read
from glassformer.proof.check.table import Mistake, Property, Subject

B, H, T, K = 2, 3, 5, 8
POSITIONS = torch.tensor([3, 70, 0, 491, 5])
X = torch.randn(B, H, T, K, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
TOLERANCE = 1e-4
"""Sines and cosines are mostly made in float32. Mistakes are far larger than this."""

LAYOUTS = Mistake(
    "two layouts are mixed",
    "Angles belong to one pairing and numbers are rotated in the other (neighbours, or the two halves), so what "
    "comes out is no rotation. Converted weights give junk in the same way.",
    "Write down, for a width of 4, which two numbers are rotated together and which angle each of them gets.",
)
IGNORED = Mistake(
    "the positions given are ignored",
    "Tokens in x are counted from 0 whatever `positions` says, so in cached decoding each new token is at 0.",
    "When one token is decoded after 20 others, what is its position?",
)
OFF = Mistake(
    "positions are off by one",
    "Everything is rotated by one step too many.",
    "By how much must the token at position 0 be rotated?",
)
EXPONENT = Mistake(
    "the exponent is wrong",
    "Pair i rotates by position / 10000^(2i / d_head); here the exponents are different.",
    "Of which width are there as many pairs as angles: the head's, or half of it?",
)
BASE = Mistake(
    "the base is not 10,000",
    "From pair to pair, the angles shrink at another rate.",
    "Which number does the paper (and every checkpoint) raise to the power?",
)
BACKWARDS = Mistake(
    "the rotation goes the wrong way",
    "The signs of the two sines are exchanged, so a checkpoint's keys are read at mirrored distances.",
    "To which of the two new numbers does the minus sign belong?",
)
SWAPPED = Mistake(
    "sine and cosine are swapped",
    "At position 0 nothing must be rotated.",
    "What are sin 0 and cos 0?",
)

PAIRS = [
    Choice(("neighbours", "neighbours")),
    Choice(("halves", "halves")),
    Choice(("neighbours", "halves"), "numbers rotated with their neighbour by the angles of the halves", LAYOUTS),
    Choice(("halves", "neighbours"), "halves rotated by the angles of neighbours", LAYOUTS),
]
PLACES = [
    Choice("given"),
    Choice("counted", "positions 0, 1, 2, ...", IGNORED),
    Choice("off", "each position plus 1", OFF),
]
SPEEDS = [
    Choice((2.0, 10_000.0)),
    Choice((1.0, 10_000.0), "the exponent i / d_head", EXPONENT),
    Choice((4.0, 10_000.0), "the exponent 4i / d_head", EXPONENT),
    *(Choice((2.0, base), f"the base {base:g}", BASE) for base in (100.0, 1_000.0, 100_000.0, 500_000.0, 1_000_000.0)),
]
TURNS = [
    Choice("right"),
    Choice("back", "the other sign of the sines", BACKWARDS),
    Choice("swapped", "sine in place of cosine", SWAPPED),
]
ASPECTS = {"pairs": PAIRS, "places": PLACES, "speeds": SPEEDS, "turn": TURNS}


def turned(pairs: tuple[str, str], places: str, speeds: tuple[float, float], turn: str) -> Tensor:
    """Return X rotated under a reading: (a, b) becomes (a cos - b sin, b cos + a sin)."""
    positions = {"given": POSITIONS, "counted": torch.arange(T), "off": POSITIONS + 1}[places].double()
    factor, base = speeds
    angles = positions[:, None] * base ** (-factor * torch.arange(K // 2).double() / K)  # [T, K / 2]
    numbers, of_angles = pairs
    wide = angles.repeat_interleave(2, -1) if of_angles == "neighbours" else torch.cat([angles, angles], -1)
    sin, cos = wide.sin(), wide.cos()
    if turn == "swapped":
        sin, cos = cos, sin
    return X * cos + partner(numbers) * (-sin if turn == "back" else sin)


def partner(numbers: str) -> Tensor:
    """Return for each number of X the other one of its pair, negated for the first of the pair."""
    if numbers == "neighbours":
        return torch.stack([-X[..., 1::2], X[..., 0::2]], -1).flatten(-2)
    return torch.cat([-X[..., K // 2 :], X[..., : K // 2]], -1)


class Rotary(Answered):
    """The learner's function. Sines in float32 also count as right."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, (X, POSITIONS), ASPECTS, turned)
        if self.reading is None and isinstance(self.seen, Tensor):
            self.reading = read(self.seen, ASPECTS, turned, TOLERANCE)


ROTARY = Subject(
    Rotary,
    (
        KNOWN,
        Property("pairs", "Numbers and angles are paired alike.", aspect("pairs"), ("equation",)),
        Property("positions", "A token is rotated by the position given for it.", aspect("places"), ("equation",)),
        Property("speeds", "Pair i rotates by position / 10000^(2i / d_head).", aspect("speeds"), ("equation",)),
        Property("direction", "(a, b) becomes (a cos - b sin, b cos + a sin).", aspect("turn"), ("equation",)),
    ),
)
