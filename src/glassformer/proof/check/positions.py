"""Tests a learner's `positional_encoding(length, d_model)` or `PositionalEncoding(d_model, max_len)`."""

from __future__ import annotations

import inspect
import math
import traceback
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.reading import Reading, aspect, distance, read
from glassformer.proof.check.sinusoid import ASPECTS, LENGTH, WIDTH, table, variant
from glassformer.proof.check.table import (
    CrashError,
    Fault,
    Mistake,
    Property,
    SignatureError,
    Subject,
    ask,
    crash_of,
    outside,
)

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
RANDOM = Mistake(
    "dropout is active in evaluation",
    "Two calls with the same input give different output: something random runs although nothing is trained.",
    "Who tells your dropout whether the model is training?",
)


def left_part(**chosen: Any) -> Tensor:
    """Return the first 6 columns of the table under a reading."""
    return variant(**chosen)[:, :6]


class Table:
    """A function that returns the table."""

    def __init__(self, function: Any) -> None:
        if not accepts(function, "length", "d_model"):
            raise SignatureError(f"{inspect.signature(function)}")
        self.function = function
        self.seen = self.given(LENGTH, WIDTH)
        self.reading = self._read()

    def given(self, length: int, width: int) -> Any:
        """Return the learner's table, without a leading axis of size 1."""
        made = ask(self.function, length, width)
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


class Encoding(Table):
    """A module that adds the table."""

    def __init__(self, kind: Any) -> None:
        if not accepts(kind, "d_model", "max_len"):
            raise SignatureError(f"{inspect.signature(kind)}")
        self.kind = kind
        self.module = self.made(WIDTH, MAX_LEN)
        if not accepts(self.module.forward, "x"):
            raise SignatureError(f"forward{inspect.signature(self.module.forward)}")
        self.draw = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(5))
        self.added = self.run(self.module, torch.zeros(BATCH, LENGTH, WIDTH))
        self.seen = self.added[0].double() if isinstance(self.added, Tensor) and self.added.ndim == 3 else self.added
        self.reading = self._read()

    def made(self, width: int, max_len: int) -> nn.Module:
        """Return an instance in evaluation mode."""
        module = ask(self.kind, width, max_len)
        if not isinstance(module, nn.Module):
            raise SignatureError("a class that is not an nn.Module")
        return module.eval()

    def run(self, module: nn.Module, x: Tensor) -> Any:
        """Return the module's output, without gradients."""
        with torch.no_grad():
            return ask(module, x)

    def given(self, length: int, width: int) -> Any:
        """Return what the module adds to zeros."""
        return self.run(self.made(width, max(length, MAX_LEN)), torch.zeros(1, length, width))[0].double()


def shape(learner: Table) -> Fault | None:
    """Check that there is one row for each position."""
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    wanted = (LENGTH, WIDTH)
    return None if got == wanted else Fault(SHAPE, f"For {LENGTH} positions and width {WIDTH} it is {got}.")


def equation(learner: Table) -> Fault | None:
    """Check that the table is the paper's, or that of a known mistake."""
    if learner.reading is not None:
        return None
    return Fault(UNKNOWN, f"The largest difference is {distance(learner.seen, table(LENGTH, WIDTH)):.2g}.")


def odd(learner: Table) -> Fault | None:
    """Check that an odd width leaves out the last cosine."""
    try:
        seen = learner.given(LENGTH, ODD)
    except CrashError as crash:
        return Fault(ODD_WIDTH, f"With d_model {ODD}: {crash_of(crash)}")
    gap = distance(seen, table(LENGTH, ODD)) if isinstance(seen, Tensor) else math.inf
    return Fault(ODD_WIDTH, f"With d_model {ODD} the table is {gap:.2g} off.") if gap > TOLERANCE else None


def along(learner: Encoding) -> Fault | None:
    """Check that token t of every row gets position t."""
    added = learner.added
    if not isinstance(added, Tensor) or added.shape != learner.draw.shape:
        return None  # the property `shape` reports it
    within = distance(added[:, 0], added[:, 1])
    across = distance(added[0], added[1])
    if across <= TOLERANCE or within > TOLERANCE:
        return None
    return Fault(
        BATCH_AXIS, f"Tokens 0 and 1 of a row get the same vector; rows 0 and 1 of the batch differ by {across:.2g}."
    )


def repeatable(learner: Encoding) -> Fault | None:
    """Check that the same input gives the same output."""
    runs = [learner.run(learner.module, learner.draw) for _ in range(5)]
    gap = max(distance(each, runs[0]) for each in runs)
    return Fault(RANDOM, f"Five calls in evaluation mode differ by up to {gap:.2g}.") if gap > 0 else None


def keeps(learner: Encoding) -> Fault | None:
    """Check that x is in the output, once."""
    rest = learner.run(learner.module, learner.draw) - learner.added
    factor = float((rest * learner.draw).sum() / learner.draw.square().sum())
    if abs(factor - 1) < 1e-3:
        return None
    told = f"The output holds x {factor:.3g} times" + (f" (√{WIDTH})." if abs(factor - WIDTH**0.5) < 1e-3 else ".")
    return Fault(LOST if abs(factor) < 1e-3 else SCALED, told)


def moves(learner: Encoding) -> Fault | None:
    """Check that the table moves with the module."""
    parts = learner.made(WIDTH, MAX_LEN).modules()
    left = [(name, x) for part in parts for name, x in vars(part).items() if isinstance(x, Tensor)]
    if not left:
        return None
    name, x = left[0]
    return Fault(
        PLAIN, f"The {x.numel()} numbers of `self.{name}` are neither parameter nor buffer and would stay behind."
    )


def past(learner: Encoding) -> Fault | None:
    """Check that past max_len the module raises an error of its own, or continues correctly."""
    length = MAX_LEN + 4
    try:
        seen = learner.run(learner.module, torch.zeros(1, length, WIDTH))
    except CrashError as crash:
        if refuses(crash):
            return None
        return Fault(TOO_LONG, f"{length} positions, max_len {MAX_LEN}: {crash_of(crash)}")
    gap = distance(seen[0], table(length, WIDTH)) if isinstance(seen, Tensor) and seen.ndim == 3 else math.inf
    return (
        Fault(TOO_LONG, f"With max_len {MAX_LEN}, {length} positions are {gap:.2g} off.") if gap > TOLERANCE else None
    )


def refuses(crash: CrashError) -> bool:
    """Whether a raise or assert in the learner's own code caused the error."""
    frames = traceback.extract_tb((crash.__cause__ or crash).__traceback__)
    return bool(frames) and not outside(frames[-1].filename) and (frames[-1].line or "").startswith(("raise", "assert"))


FORMULA = (
    Property("equation", "The table is that of the paper, section 3.5.", equation, ("shape", "along", "repeatable")),
    Property("layout", "Sines stand at even columns, cosines at odd ones.", aspect("layout"), ("equation",)),
    Property("exponent", "Pair i has the exponent 2i / d_model.", aspect("exponent"), ("equation",)),
    Property("base", "Wavelengths grow to 10,000 times 2π.", aspect("base"), ("equation",)),
    Property("sign", "Later columns turn slower.", aspect("sign"), ("equation",)),
    Property("start", "The first position is 0.", aspect("start"), ("equation",)),
    Property("odd-width", "d_model may be odd.", odd, ("equation", "layout", "exponent", "base", "sign", "start")),
)
TABLE = Subject(Table, (Property("shape", "There is one row of width d_model for each position.", shape), *FORMULA))
ENCODING = Subject(
    Encoding,
    (
        Property("shape", "There is one vector of width d_model for each position.", shape),
        Property("repeatable", "In evaluation mode the same input gives the same output.", repeatable, ("shape",)),
        Property("along", "Positions run along the sequence.", along, ("shape",)),
        *FORMULA,
        Property("keeps-x", "The output is x plus the table.", keeps, ("shape", "repeatable")),
        Property("moves", "The table moves with the module.", moves),
        Property(
            "max-len",
            "A sequence past max_len is refused with a clear message, or gets the right result.",
            past,
            ("equation", "start"),
        ),
    ),
)
