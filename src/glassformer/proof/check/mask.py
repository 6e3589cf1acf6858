"""Tests that a mask hides what it must, for any code that attends, through one small interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.reading import Choice, Reading, read
from glassformer.proof.check.table import CrashError, Fault, Mistake, NotTestedError, Property, crash_of

T = 6
"""Positions in every probe.

Batch 2, heads 3, d_head 4, d_model 12, d_ff 20: no two sizes are equal, nor is one of them 3 times d_model.
"""
BATCH, HEADS, WIDTH = 2, 3, 4
LEVELS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""A hidden key must stay hidden even if the allowed scores are as low as minus these numbers."""

Masking = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]
"""Turns scores, a boolean mask and the normalisation into weights."""

UNREAD = "the computation was not recognised; see `equation`"


class Attending(ABC):
    """A learner's code that attends, seen as the output of its attention weights for fixed inputs."""

    takes_mask = True
    reading: Reading | None
    """What it computes without a mask."""

    @abstractmethod
    def answer(self, mask: Tensor | None) -> Tensor:
        """Return the output under a boolean mask [T, T] or [B, 1, 1, T]; queries are at axis -2."""

    @abstractmethod
    def predicted(self, mask: Tensor, masking: Masking) -> Tensor:
        """Return the output that the reading predicts for this way of masking."""

    @abstractmethod
    def leak(self, level: float) -> float:
        """Return the weight on hidden keys of a query whose allowed key scores -level and whose hidden keys +level."""

    @abstractmethod
    def slopes(self, mask: Tensor) -> list[Tensor]:
        """Return the gradient of the sum of squares of the answer with respect to the inputs."""

    def influence(self, mask: Tensor) -> Tensor:
        """Return [T, T], True where key s changes query t under the mask."""
        del mask
        raise NotTestedError(UNREAD)

    @abstractmethod
    def in_half(self, mask: Tensor) -> Tensor:
        """Return the answer in float16."""


HIDING = ("110100", "011010", "101001", "110010", "001101", "010110")
MASK = torch.tensor([[digit == "1" for digit in row] for row in HIDING])
"""An asymmetric mask that allows something and hides something in every row and column."""
PADDING = torch.tensor([[True, True, True, False, True, False], [True, False, True, True, False, True]])[:, None, None]
EMPTY = MASK & (torch.arange(T)[:, None] > 0)
"""`MASK`, but query 0 may read nothing."""

INVERTED = Mistake(
    "the mask is inverted",
    "Keys that may be read are hidden, and those to be hidden are read: True is taken as 'hide'.",
    "Here True means 'may be read'. Which positions does your fill hit?",
)
IGNORED = Mistake(
    "the mask is ignored",
    "The output with the mask is the output without it.",
    "Does the mask reach the scores, and is the result of the fill used?",
)
ADDED = Mistake(
    "the mask is added as 0 and 1",
    "True and False are added to the scores as numbers, which changes a score by 1 and hides nothing.",
    "What would have to be added to a score so that its weight becomes 0?",
)
ZEROED = Mistake(
    "hidden scores are set to 0",
    "A score of 0 (or a tiny one such as 1e-9) is an ordinary score, so a hidden key still gets weight.",
    "What must a score be so that its exponential is 0?",
)
LATE = Mistake(
    "the mask is applied after the softmax",
    "Hidden weights are zeroed afterwards, so the others no longer sum to 1.",
    "At which step must a key be excluded so that the others share the whole weight?",
)
TRANSPOSED = Mistake(
    "the mask is transposed",
    "Rows and columns of the mask are confused: query t gets the column of key t, not its own row.",
    "Rows of the scores are queries. Are they also the rows of your mask?",
)
NOT_A_NUMBER = Mistake(
    "the mask gives NaN",
    "Where every query may read something, the output still holds NaN, as from 0 times infinity.",
    "Does your code multiply by an infinite number anywhere?",
)
SMALL = Mistake(
    "the fill of the mask is too small",
    "Hidden scores get a finite number that real scores can fall below; then the hidden key wins.",
    "Is there a number, or a value of its dtype, that no score can fall below?",
)
FAILS = Mistake(
    "a mask makes it fail",
    "Without a mask it runs, with one it raises an error.",
    "Which shape does the mask have at that line, and which shape have the scores?",
)
UNCLEAR = Mistake(
    "the mask is not applied as documented",
    "With the mask the output is neither that of the equation nor that of a mistake known here.",
    "Print the weights for three tokens, with a mask that hides one key, and compare them with your own sum by hand.",
)
NO_BROADCAST = Mistake(
    "a padding mask is not applied to each row of the batch",
    "A mask of shape [B, 1, 1, S] must hide each row's own padding from all heads and queries of that row.",
    "Which axis of the scores does each axis of the mask meet?",
)
ROW_NAN = Mistake(
    "a query that may read nothing gives NaN",
    "Its scores are all minus infinity, and their softmax divides 0 by 0; NaN then spreads through the network.",
    "Decide what a query without anything to read should get, and handle that row separately.",
)
ROW_READS = Mistake(
    "a query that may read nothing reads hidden keys",
    "All its scores are the same fill, so the softmax gives each hidden key the same weight.",
    "Decide what a query without anything to read should get, and handle that row separately.",
)
SLOPE_NAN = Mistake(
    "the gradient of an empty row is NaN",
    "The output is repaired after the softmax, but the softmax itself still passes NaN backwards.",
    "Can you avoid the NaN instead of replacing it?",
)
HALF = Mistake(
    "the fill does not fit float16",
    "The number put in place of hidden scores lies outside float16, which ends at 65,504.",
    "Is there a fill that fits every dtype?",
)


def filled(scores: Tensor, mask: Tensor, fill: float) -> Tensor:
    """Return the scores with hidden ones replaced by `fill`."""
    return scores.masked_fill(~mask, fill)


INF = float("-inf")
RIGHT: Masking = lambda s, m, normal: normal(filled(s, m, INF))  # noqa: E731


def way(masking: Masking, words: str, mistake: Mistake | None) -> Choice:
    """Return a choice whose value is a way to mask."""
    return Choice(masking, words, mistake)


def too_small(fill: float) -> Choice:
    """Return the choice that replaces hidden scores by a number of the size of a score."""
    return way(lambda s, m, normal: normal(filled(s, m, fill)), f"hidden scores at {fill:g}", SMALL)


MASKINGS: list[Choice] = [
    way(RIGHT, "the mask as documented", None),
    way(lambda s, m, normal: normal(filled(s, ~m, INF)), "True as 'hide'", INVERTED),
    way(lambda s, m, normal: normal(s), "no mask", IGNORED),
    way(lambda s, m, normal: normal(s + m), "the mask added to the scores", ADDED),
    way(lambda s, m, normal: normal(s - m.to(s.dtype)), "the mask's negation added to the scores", ADDED),
    way(lambda s, m, normal: normal(filled(s, m, 0.0)), "hidden scores at 0", ZEROED),
    way(lambda s, m, normal: normal(filled(s, ~m, 0.0)), "allowed scores at 0", INVERTED),
    way(lambda s, m, normal: normal(s) * m, "weights times the mask", LATE),
    way(lambda s, m, normal: normal(s) * ~m, "weights times the mask's negation", INVERTED),
    way(lambda s, m, normal: normal(filled(s, m.mT, INF)), "the mask transposed", TRANSPOSED),
    way(lambda s, m, normal: normal(filled(s, ~m.mT, INF)), "the mask transposed and inverted", INVERTED),
    *map(too_small, (-1.0, -10.0)),
    way(lambda s, m, normal: normal(s - 10.0 * ~m), "-10 added to hidden scores", SMALL),
]
"""Ways to mask, which `mixed` applies."""


def needs_mask(learner: Attending) -> None:
    """Raise `NotTestedError` for code that takes no mask."""
    if not learner.takes_mask:
        raise NotTestedError("it takes no mask")


def polarity(learner: Attending) -> Fault | None:
    """Check that True means "may be read", for a mask [T, S]."""
    try:
        if learner.reading is None:
            return by_influence(learner)
        seen = learner.answer(MASK)
    except CrashError as crash:
        return Fault(FAILS, f"With a mask of shape [{T}, {T}]: {crash_of(crash)}")
    if seen.isnan().any():
        return Fault(NOT_A_NUMBER, f"{int(seen.isnan().sum())} of {seen.numel()} numbers are NaN.")
    found = read(seen, {"masking": MASKINGS}, partial(learner.predicted, MASK))
    return Fault(UNCLEAR, "No known way of masking gives these numbers.") if found is None else found.fault("masking")


def by_influence(learner: Attending) -> Fault | None:
    """Check the same for code without a reading, by which keys change which queries."""
    moves = learner.influence(MASK)
    patterns = {INVERTED: ~MASK, IGNORED: torch.ones_like(MASK), TRANSPOSED: MASK.mT}
    own = torch.eye(T, dtype=torch.bool)  # a query changes its own output even if it may not read its own key
    if torch.equal(moves | own, MASK | own):
        return None
    wrong = (moves & ~MASK & ~own).sum()
    for mistake, pattern in patterns.items():
        if torch.equal(moves | own, pattern | own):
            return Fault(mistake, f"{int(wrong)} hidden keys move a query that must not read them.")
    return Fault(UNCLEAR, f"{int(wrong)} hidden keys move a query that must not read them.")


def fill(learner: Attending) -> Fault | None:
    """Check that a hidden key stays hidden however low the allowed scores are."""
    for level in LEVELS:
        weight = learner.leak(float(level))
        if not weight < 1e-3:
            said = f"Where the allowed key scores {-level:,}, hidden keys get a weight of {weight:.2g} instead of 0."
            return Fault(SMALL, said)
    return None


def padding(learner: Attending) -> Fault | None:
    """Check that a mask [B, 1, 1, S] hides each row's own padding."""
    if learner.reading is None:
        raise NotTestedError(UNREAD)
    try:
        seen = learner.answer(PADDING)
    except CrashError as crash:
        return Fault(NO_BROADCAST, crash_of(crash))
    expected = learner.predicted(PADDING, RIGHT)
    gap = (seen - expected).abs().max().item() if seen.shape == expected.shape else float("nan")
    return None if gap < 1e-7 else Fault(NO_BROADCAST, f"With such a mask your output is {gap:.2g} off.")


def empty_row(learner: Attending) -> Fault | None:
    """Check that a query that may read nothing gets zeros."""
    row = learner.answer(EMPTY).select(-2, 0)
    if row.isnan().any():
        return Fault(ROW_NAN, f"{int(row.isnan().sum())} of {row.numel()} numbers of that query are NaN.")
    if learner.reading is None:
        raise NotTestedError(UNREAD)
    largest = row.abs().max().item()
    return None if largest < 1e-7 else Fault(ROW_READS, f"It gets up to {largest:.2g} instead of 0.")


def empty_slope(learner: Attending) -> Fault | None:
    """Check that the gradient is finite if a query may read nothing."""
    slopes = learner.slopes(EMPTY)
    broken = sum(int((~each.isfinite()).sum()) for each in slopes)
    total = sum(each.numel() for each in slopes)
    return Fault(SLOPE_NAN, f"{broken} of {total} numbers of the gradient are not finite.") if broken else None


def half(learner: Attending) -> Fault | None:
    """Check that the mask works in float16."""
    try:
        seen = learner.in_half(MASK)
    except CrashError as crash:
        if "overflow" in str(crash.__cause__):
            return Fault(HALF, crash_of(crash))
        raise NotTestedError(f"it does not run in float16: {crash_of(crash)}") from None
    broken = int((~seen.isfinite()).sum())
    return Fault(HALF, f"{broken} of {seen.numel()} numbers are not finite in float16.") if broken else None


def masked(probe: Callable[[Any], Fault | None]) -> Callable[[Any], Fault | None]:
    """Make a probe skip code that takes no mask."""

    def probed(learner: Attending) -> Fault | None:
        needs_mask(learner)
        return probe(learner)

    return probed


BEFORE = ("repeatable", "rows", "equation", "parts", "order", "split", "softmax", "merge")
"""Properties that must hold before masks can be tested, as far as a kind of code has them."""


def mask_properties() -> list[Property]:
    """Return the properties of masking."""
    table: list[tuple[str, str, Any, tuple[str, ...]]] = [
        ("mask", "A key where the mask is False gets no weight, and the others share it.", polarity, BEFORE),
        ("fill", "A hidden key stays hidden however low the other scores are.", fill, ("mask",)),
        ("padding", "A mask [B, 1, 1, S] hides each row's own padding.", padding, ("mask",)),
        ("empty-row", "A query that may read nothing gets zeros.", empty_row, ("mask",)),
        ("empty-gradient", "The gradient is finite where a query may read nothing.", empty_slope, ("empty-row",)),
        ("float16", "The mask works in float16.", half, ("mask",)),
    ]
    optional = ("empty-row", "empty-gradient")
    return [Property(name, law, masked(probe), needs, name in optional) for name, law, probe, needs in table]
