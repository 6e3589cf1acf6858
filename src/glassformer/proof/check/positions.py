"""Tests sinusoidal tables, modules that add them, and rotations."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.nn.positions import Sinusoidal, Sizes
from glassformer.proof.check.calling import (
    Choice,
    Reading,
    aspect,
    built,
    called,
    distance,
    form,
    forward_of,
    read,
    repeated,
)
from glassformer.proof.check.labels import Answered
from glassformer.proof.check.property import CrashError, Fault, Mistake, ask, crash_of, law, outside

LENGTH, WIDTH = 9, 12

SWAPPED = Mistake(
    "sine and cosine are swapped",
    "Even columns hold the cosine and odd ones the sine.",
    "At position 0, what must the first number be?",
)
HALVES = Mistake(
    "sines and cosines stand in halves",
    "All sines come first and all cosines after them, though the two of a pair must be neighbours.",
    "In section 3.5 of the paper, which column holds the cosine that belongs to column 0?",
)
EXPONENT = Mistake(
    "the exponent is wrong",
    "The wavelengths do not grow as the paper's: the index of the pair, or its factor 2, enters wrongly.",
    "For the last pair of columns, what is your exponent? It is just below 1 in the paper.",
)
PAIRS = Mistake(
    "sine and cosine of a pair have different wavelengths",
    "The exponent is computed from the column, so that it differs between the two columns of a pair.",
    "In section 3.5 of the paper, do 2i and 2i+1 both stand in the exponent?",
)
BASE = Mistake(
    "the base is not 10,000",
    "The wavelengths go up to another length than the paper's.",
    "Count the zeros.",
)
SIGN = Mistake(
    "the angle is multiplied by the power instead of divided",
    "Later columns turn faster instead of slower.",
    "Should neighbouring positions look alike in the last columns?",
)
OFF = Mistake(
    "positions are off by one",
    "The first position is not 0.",
    "At position 0 the paper's angles are all 0. What are yours?",
)


def table(length: int, width: int) -> Tensor:
    """Return our table, which is the documented one."""
    positions = torch.arange(length)
    made = Sinusoidal(Sizes(width, 1, width, None)).embedding(positions, torch.zeros((), dtype=torch.float64))
    assert made is not None
    return made


def exponents(pairs: Tensor, how: str) -> Tensor:
    """Return the exponents of the wavelengths, by the number i of the pair."""
    ways = {
        "2i/D": 2 * pairs / WIDTH,
        "i/D": pairs / WIDTH,
        "4i/D": 4 * pairs / WIDTH,
        "i": pairs,
        "2i": 2 * pairs,
        "2i/(D-2)": 2 * pairs / (WIDTH - 2),
    }
    return ways[how]


def variant(layout: str, exponent: str, base: float, sign: int, start: int) -> Tensor:
    """Return the table under a reading."""
    if (layout, exponent, base, sign, start) == ("alternate", "2i/D", 10_000.0, 1, 0):
        return table(LENGTH, WIDTH)
    position = torch.arange(start, start + LENGTH, dtype=torch.float64)[:, None]
    pairs = torch.arange(WIDTH // 2, dtype=torch.float64)
    if exponent in ("by column", "by column over D/2"):
        power = torch.arange(WIDTH, dtype=torch.float64) / WIDTH * (2 if exponent.endswith("D/2") else 1)
        odd = torch.arange(WIDTH) % 2 == (layout != "swapped")
        angle = position * base ** (-sign * power)
        return torch.where(odd, angle.cos(), angle.sin())
    angle = position * base ** (-sign * exponents(pairs, exponent))
    if layout == "halves":
        return torch.cat([angle.sin(), angle.cos()], -1)
    both = [angle.cos(), angle.sin()] if layout == "swapped" else [angle.sin(), angle.cos()]
    return torch.stack(both, -1).flatten(1)


ASPECTS = {
    "layout": [
        Choice("alternate"),
        Choice("swapped", "cosines at even columns", SWAPPED),
        Choice("halves", "sines first, then cosines", HALVES),
    ],
    "base": [
        Choice(10_000.0),
        *(Choice(base, f"the base {base:,.10g}", BASE) for base in (10.0, 100.0, 1_000.0, 100_000.0, math.e)),
    ],
    "exponent": [
        Choice("2i/D"),
        Choice("by column", "an exponent from the column, c/D", PAIRS),
        Choice("by column over D/2", "an exponent from the column, 2c/D", PAIRS),
        *(Choice(how, f"the exponent {how}", EXPONENT) for how in ("i/D", "4i/D", "i", "2i", "2i/(D-2)")),
    ],
    "sign": [Choice(1), Choice(-1, "angles times the power", SIGN)],
    "start": [Choice(0), Choice(1, "positions from 1", OFF), Choice(-1, "positions from -1", OFF)],
}


ODD, BATCH, MAX_LEN = 7, 3, 16
TOLERANCE = 1e-4
"""Tables are mostly made in float32. Mistakes are far larger than this."""

SHAPE = Mistake(
    "the table has the wrong shape",
    "There must be one row of width d_model for each position.",
    "Which axis is the position, and which the column of the embedding?",
)
UNKNOWN = Mistake(
    "the table is not that of the paper",
    "The numbers differ, and no mistake known here explains them.",
    "Compute columns 0 to 3 of positions 0 and 1 by hand.",
)
ODD_WIDTH = Mistake(
    "an odd d_model fails",
    "With an odd width there is one sine more than there are cosines.",
    "How many even columns are there among 7, and how many odd ones?",
)
BATCH_AXIS = Mistake(
    "positions run along the batch",
    "Each row of the batch gets one position, the same for all its tokens.",
    "Which axis of x is the sequence? The batch comes first.",
)
LOST = Mistake(
    "the input is lost",
    "Only the table is returned; x is not added.",
    "What should the next layer know of the token itself?",
)
SCALED = Mistake(
    "the input is scaled here",
    "x is multiplied by a number before the table is added; √d_model belongs to the embedding, once.",
    "Who multiplies the embedding by √d_model, and how often does that happen in all?",
)
PLAIN = Mistake(
    "the table is a plain tensor",
    "A tensor that is only an attribute stays behind when the module moves to another device or dtype.",
    "How does a module learn of a tensor that is no parameter but belongs to it?",
)
TOO_LONG = Mistake(
    "a sequence past max_len is not refused",
    "It fails inside torch with a message about sizes, or uses positions that do not exist.",
    "What would you like to read at that moment: which rule, which length, which limit?",
)
TRAINED = Mistake(
    "the table is trained",
    "The table is a parameter, so an optimizer changes it; the paper's table stays as it is.",
    "Which kind of tensor travels with a module and is not learned?",
)


def left_part(**chosen: Any) -> Tensor:
    """Return the first 6 columns of the table under a reading."""
    return variant(**chosen)[:, :6]


class Table:
    """A function that returns the table."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seen = self.given(LENGTH, WIDTH)
        self.reading = self._read()

    def given(self, length: int, width: int) -> Any:
        """Return the learner's table, without a leading axis of size 1."""
        made = called(self.function, {"length": length, "d_model": width})
        if isinstance(made, Tensor) and made.ndim == 3 and made.shape[0] == 1:
            return made[0].detach().double()
        return made.detach().double() if isinstance(made, Tensor) else made

    def _read(self) -> Reading | None:
        if not isinstance(self.seen, Tensor):
            return None
        whole = read(self.seen, ASPECTS, variant, TOLERANCE)
        if whole is not None or self.seen.shape != (LENGTH, WIDTH):
            return whole
        # Angles that grow instead of falling get so large in the last columns that float32 rounds them differently.
        part = read(self.seen[:, :6], ASPECTS, left_part, TOLERANCE)
        return part if part is not None and part.fault("sign") is not None else None

    @law("There is one row of width d_model for each position.")
    def shape(self) -> Fault | None:
        evidence = f"For {LENGTH} positions and width {WIDTH} it is {form(self.seen)}."
        return None if form(self.seen) == (LENGTH, WIDTH) else Fault(SHAPE, evidence)

    @law("The table is that of the paper, section 3.5.", "shape", "along", "repeatable")
    def equation(self) -> Fault | None:
        evidence = f"The largest difference is {distance(self.seen, table(LENGTH, WIDTH)):.2g}."
        return Fault(UNKNOWN, evidence) if self.reading is None else None

    layout = aspect("layout", "Sines stand at even columns, cosines at odd ones.")
    exponent = aspect("exponent", "Pair i has the exponent 2i / d_model.")
    base = aspect("base", "Wavelengths grow to 10,000 times 2π.")
    sign = aspect("sign", "Later columns turn slower.")
    start = aspect("start", "The first position is 0.")

    @law("d_model may be odd.", "equation", "layout", "exponent", "base", "sign", "start", optional=True)
    def odd_width(self) -> Fault | None:
        try:
            seen = self.given(LENGTH, ODD)
        except CrashError as crash:
            return Fault(ODD_WIDTH, f"With d_model {ODD}: {crash_of(crash)}")
        gap = distance(seen, table(LENGTH, ODD)) if isinstance(seen, Tensor) else math.inf
        return Fault(ODD_WIDTH, f"With d_model {ODD} the table is {gap:.2g} off.") if gap > TOLERANCE else None


class Encoding(Table):
    """A module that adds the table."""

    laws = "shape repeatable along equation layout exponent base sign start odd-width keeps-x moves fixed max-len"

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.module = self.made(WIDTH, MAX_LEN)
        forward_of(self.module, "x")
        self.draw = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(5))
        self.added = self.run(self.module, torch.zeros(BATCH, LENGTH, WIDTH))
        self.seen = self.added[0].double() if isinstance(self.added, Tensor) and self.added.ndim == 3 else self.added
        self.reading = self._read()

    def made(self, width: int, max_len: int) -> nn.Module:
        """Return an instance in evaluation mode."""
        return built(self.kind, {"d_model": width, "max_len": max_len}).eval()

    def run(self, module: nn.Module, x: Tensor) -> Any:
        """Return the module's output, without gradients."""
        with torch.no_grad():
            return ask(module, x)

    def given(self, length: int, width: int) -> Any:
        """Return what the module adds to zeros."""
        return self.run(self.made(width, max(length, MAX_LEN)), torch.zeros(1, length, width))[0].double()

    shape = replace(Table.shape, law="There is one vector of width d_model for each position.")

    repeatable = repeated(lambda learner: learner.run(learner.module, learner.draw))

    @law("Positions run along the sequence.", "shape")
    def along(self) -> Fault | None:
        added = self.added
        if not isinstance(added, Tensor) or added.shape != self.draw.shape:
            return None  # the property `shape` reports it
        within = distance(added[:, 0], added[:, 1])
        across = distance(added[0], added[1])
        if across <= TOLERANCE or within > TOLERANCE:
            return None
        evidence = f"Tokens 0 and 1 of a row get the same vector; rows 0 and 1 of the batch differ by {across:.2g}."
        return Fault(BATCH_AXIS, evidence)

    @law("The output is x plus the table.", "shape", "repeatable")
    def keeps_x(self) -> Fault | None:
        rest = self.run(self.module, self.draw) - self.added
        factor = float((rest * self.draw).sum() / self.draw.square().sum())
        if abs(factor - 1) < 1e-3:
            return None
        evidence = f"The output holds x {factor:.3g} times" + (
            f" (√{WIDTH})." if abs(factor - WIDTH**0.5) < 1e-3 else "."
        )
        return Fault(LOST if abs(factor) < 1e-3 else SCALED, evidence)

    @law("The table moves with the module.")
    def moves(self) -> Fault | None:
        parts = self.made(WIDTH, MAX_LEN).modules()
        left = [(name, x) for part in parts for name, x in vars(part).items() if isinstance(x, Tensor)]
        if not left:
            return None
        name, x = left[0]
        evidence = f"The {x.numel()} numbers of `self.{name}` are neither parameter nor buffer and would stay behind."
        return Fault(PLAIN, evidence)

    @law("The table is not trained.", "equation")
    def fixed(self) -> Fault | None:
        found = [name for name, each in self.made(WIDTH, MAX_LEN).named_parameters() if each.numel() >= MAX_LEN * WIDTH]
        return Fault(TRAINED, f"`{found[0]}` is a parameter.") if found else None

    @law(
        "A sequence past max_len is refused with a clear message, or gets the right result.",
        "equation",
        "start",
        optional=True,
    )
    def max_len(self) -> Fault | None:
        length = MAX_LEN + 4
        try:
            seen = self.run(self.module, torch.zeros(1, length, WIDTH))
        except CrashError as crash:
            if refuses(crash):
                return None
            return Fault(TOO_LONG, f"{length} positions, max_len {MAX_LEN}: {crash_of(crash)}")
        gap = distance(seen[0], table(length, WIDTH)) if isinstance(seen, Tensor) and seen.ndim == 3 else math.inf
        evidence = f"With max_len {MAX_LEN}, {length} positions are {gap:.2g} off."
        return Fault(TOO_LONG, evidence) if gap > TOLERANCE else None


def refuses(crash: CrashError) -> bool:
    """Whether a raise or assert in the learner's own code caused the error."""
    frames = traceback.extract_tb((crash.__cause__ or crash).__traceback__)
    return bool(frames) and not outside(frames[-1].filename) and (frames[-1].line or "").startswith(("raise", "assert"))


ROWS, HEADS, TOKENS, PER_HEAD = 2, 3, 5, 8
ROTARY_POSITIONS = torch.tensor([3, 70, 0, 491, 5])
ROTATED = torch.randn(ROWS, HEADS, TOKENS, PER_HEAD, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
ROTARY_TOLERANCE = 1e-4
"""Sines and cosines are mostly made in float32. Mistakes are far larger than this."""

ROTARY_LAYOUTS = Mistake(
    "two layouts are mixed",
    "Angles belong to one pairing and numbers are rotated in the other (neighbours, or the two halves), so what "
    "comes out is no rotation. Converted weights give junk in the same way.",
    "Write down, for a width of 4, which two numbers are rotated together and which angle each of them gets.",
)
ROTARY_IGNORED = Mistake(
    "the positions given are ignored",
    "Tokens in x are counted from 0 whatever `positions` says, so in cached decoding each new token is at 0.",
    "When one token is decoded after 20 others, what is its position?",
)
ROTARY_OFF = Mistake(
    "positions are off by one",
    "Everything is rotated by one step too many.",
    "By how much must the token at position 0 be rotated?",
)
ROTARY_EXPONENT = Mistake(
    "the exponent is wrong",
    "Pair i rotates by position / 10000^(2i / d_head); here the exponents are different.",
    "Of which width are there as many pairs as angles: the head's, or half of it?",
)
ROTARY_BASE = Mistake(
    "the base is not 10,000",
    "From pair to pair, the angles shrink at another rate.",
    "Which number does the paper (and every checkpoint) raise to the power?",
)
ROTARY_BACKWARDS = Mistake(
    "the rotation goes the wrong way",
    "The signs of the two sines are exchanged, so a checkpoint's keys are read at mirrored distances.",
    "To which of the two new numbers does the minus sign belong?",
)
ROTARY_SWAPPED = Mistake(
    "sine and cosine are swapped",
    "At position 0 nothing must be rotated.",
    "What are sin 0 and cos 0?",
)

ROTARY_PAIRS = [
    Choice(("neighbours", "neighbours")),
    Choice(("halves", "halves")),
    Choice(("neighbours", "halves"), "neighbours rotated by the angles of the halves", ROTARY_LAYOUTS),
    Choice(("halves", "neighbours"), "halves rotated by the angles of neighbours", ROTARY_LAYOUTS),
]
ROTARY_PLACES = [
    Choice("given"),
    Choice("counted", "positions 0, 1, 2, ...", ROTARY_IGNORED),
    Choice("off", "each position plus 1", ROTARY_OFF),
]
ROTARY_SPEEDS = [
    Choice((2.0, 10_000.0)),
    Choice((1.0, 10_000.0), "the exponent i / d_head", ROTARY_EXPONENT),
    Choice((4.0, 10_000.0), "the exponent 4i / d_head", ROTARY_EXPONENT),
    *(Choice((2.0, base), f"the base {base:g}", ROTARY_BASE) for base in (100.0, 1e3, 1e5, 5e5, 1e6)),
]
ROTARY_TURNS = [
    Choice("right"),
    Choice("back", "the other sign of the sines", ROTARY_BACKWARDS),
    Choice("swapped", "sine in place of cosine", ROTARY_SWAPPED),
]
ROTARY_ASPECTS = {"pairs": ROTARY_PAIRS, "places": ROTARY_PLACES, "speeds": ROTARY_SPEEDS, "turn": ROTARY_TURNS}


def turned(pairs: tuple[str, str], places: str, speeds: tuple[float, float], turn: str) -> Tensor:
    """Return the numbers rotated under a reading: (a, b) becomes (a cos - b sin, b cos + a sin)."""
    given = ROTARY_POSITIONS
    positions = {"given": given, "counted": torch.arange(TOKENS), "off": given + 1}[places].double()
    factor, base = speeds
    angles = positions[:, None] * base ** (-factor * torch.arange(PER_HEAD // 2).double() / PER_HEAD)
    numbers, of_angles = pairs
    wide = angles.repeat_interleave(2, -1) if of_angles == "neighbours" else torch.cat([angles, angles], -1)
    sin, cos = wide.sin(), wide.cos()
    if turn == "swapped":
        sin, cos = cos, sin
    return ROTATED * cos + partner(numbers) * (-sin if turn == "back" else sin)


def partner(numbers: str) -> Tensor:
    """Return for each number of ROTATED the other one of its pair, negated for the first of the pair."""
    if numbers == "neighbours":
        return torch.stack([-ROTATED[..., 1::2], ROTATED[..., 0::2]], -1).flatten(-2)
    return torch.cat([-ROTATED[..., PER_HEAD // 2 :], ROTATED[..., : PER_HEAD // 2]], -1)


class Rotary(Answered):
    """The learner's function. Sines in float32 also count as right."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, (ROTATED, ROTARY_POSITIONS), ROTARY_ASPECTS, turned, ROTARY_TOLERANCE)

    pairs = aspect("pairs", "Numbers and angles are paired alike.")
    positions = aspect("places", "A token is rotated by the position given for it.", name="positions")
    speeds = aspect("speeds", "Pair i rotates by position / 10000^(2i / d_head).")
    direction = aspect("turn", "(a, b) becomes (a cos - b sin, b cos + a sin).", name="direction")
