"""Tests masks: that they hide what they must, for any code that attends, and functions that make them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.mask import Mask
from glassformer.proof.check.calling import TOLERANCE, Choice, Reading, aspect, form, in_order, itself, read
from glassformer.proof.check.labels import Answered
from glassformer.proof.check.property import (
    CrashError,
    Fault,
    Mistake,
    NotTestedError,
    Probe,
    Subject,
    crash_of,
    law,
)

T = 6
"""Positions. With d_model 12 and d_ff 20, no two sizes are equal, nor is one of them 3 times d_model."""
BATCH, HEADS, WIDTH = 2, 3, 4
LEVELS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""A hidden key must stay hidden even if the allowed scores are as low as minus these numbers."""

Masking = Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]
"""Turns scores, a boolean mask and the normalisation into weights."""

UNREAD = "the computation was not recognised; see `equation`"


HIDING = ("110100", "011010", "101001", "110010", "001101", "010110")
MASK = torch.tensor([[digit == "1" for digit in row] for row in HIDING])
"""An asymmetric mask that allows something and hides something in every row and column."""
PADDING = torch.tensor([[True, True, True, False, True, False], [True, False, True, True, False, True]])[:, None, None]
EMPTY = MASK & (torch.arange(T)[:, None] > 0)
"""`MASK`, but query 0 may read nothing."""

HIDDEN_KEYS = torch.tensor([True, True, False, True, False, True])
"""Which keys may be read, the same for all queries."""
KEEPS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda keep: keep.expand(BATCH, 1, 1, T),
    lambda keep: keep.expand(BATCH, T),
    lambda keep: keep.expand(T, T),
    lambda keep: keep.expand(BATCH, T, T),
    lambda keep: keep.expand(BATCH, 1, T, T),
)
"""The forms in which a mask of keys is tried."""

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


def wrong_keys(read: Tensor, ignored: Mistake) -> Mistake | None:
    """Return what is wrong if these keys are read under `HIDDEN_KEYS`, and None if they are those."""
    if torch.equal(read, HIDDEN_KEYS):
        return None
    return INVERTED if torch.equal(read, ~HIDDEN_KEYS) else ignored if read.all() else UNCLEAR


def filled(scores: Tensor, mask: Tensor, fill: float) -> Tensor:
    """Return the scores with hidden ones replaced by `fill`."""
    return scores.masked_fill(~mask, fill)


INF = float("-inf")
RIGHT: Masking = lambda s, m, normal: normal(filled(s, m, INF))  # noqa: E731


WAYS: list[tuple[Masking, str, Mistake | None]] = [
    (RIGHT, "the mask as documented", None),
    (lambda s, m, normal: normal(filled(s, ~m, INF)), "True as 'hide'", INVERTED),
    (lambda s, m, normal: normal(s), "no mask", IGNORED),
    (lambda s, m, normal: normal(s + m), "the mask added to the scores", ADDED),
    (lambda s, m, normal: normal(s - m.to(s.dtype)), "the mask's negation added to the scores", ADDED),
    (lambda s, m, normal: normal(filled(s, m, 0.0)), "hidden scores at 0", ZEROED),
    (lambda s, m, normal: normal(filled(s, ~m, 0.0)), "allowed scores at 0", INVERTED),
    (lambda s, m, normal: normal(s) * m, "weights times the mask", LATE),
    (lambda s, m, normal: normal(s) * ~m, "weights times the mask's negation", INVERTED),
    (lambda s, m, normal: normal(filled(s, m.mT, INF)), "the mask transposed", TRANSPOSED),
    (lambda s, m, normal: normal(filled(s, ~m.mT, INF)), "the mask transposed and inverted", INVERTED),
    (lambda s, m, normal: normal(filled(s, m, -1.0)), "hidden scores at -1", SMALL),
    (lambda s, m, normal: normal(filled(s, m, -10.0)), "hidden scores at -10", SMALL),
    (lambda s, m, normal: normal(s - 10.0 * ~m), "-10 added to hidden scores", SMALL),
]
MASKINGS = [Choice(*each) for each in WAYS]
"""Ways to mask, which `mixed` applies."""


BEFORE = ("repeatable", "rows", "equation", "parts", "order", "split", "softmax", "merge")
"""Properties that must hold before masks can be tested, as far as a kind of code has them."""


MASKING = "mask fill padding empty-row empty-gradient float16"
"""The laws of masking, in order."""


def masked(probe: Probe) -> Probe:
    """Make a probe skip code that takes no mask."""

    @wraps(probe)
    def probed(learner: Attending) -> Fault | None:
        learner.needs_mask()
        return probe(learner)

    return probed


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

    def needs_mask(self) -> None:
        """Raise `NotTestedError` for code that takes no mask."""
        if not self.takes_mask:
            raise NotTestedError("it takes no mask")

    def polarity(self) -> Fault | None:
        """Check that True means "may be read", for a mask [T, S]."""
        try:
            if self.reading is None:
                return self.by_influence()
            seen = self.answer(MASK)
        except CrashError as crash:
            return Fault(FAILS, f"With a mask of shape [{T}, {T}]: {crash_of(crash)}")
        if seen.isnan().any():
            return Fault(NOT_A_NUMBER, f"{int(seen.isnan().sum())} of {seen.numel()} numbers are NaN.")
        found = read(seen, {"masking": MASKINGS}, partial(self.predicted, MASK))
        return found.fault("masking") if found else Fault(UNCLEAR, "No known way of masking gives these numbers.")

    def by_influence(self) -> Fault | None:
        """Check the same for code without a reading, by which keys change which queries."""
        own = torch.eye(T, dtype=torch.bool)  # a query changes its own output even if it may not read its own key
        moves = self.influence(MASK) | own
        if torch.equal(moves, MASK | own):
            return None
        patterns = {INVERTED: ~MASK, IGNORED: torch.ones_like(MASK), TRANSPOSED: MASK.mT}
        fitting = (mistake for mistake, pattern in patterns.items() if torch.equal(moves, pattern | own))
        wrong = int((moves & ~MASK & ~own).sum())
        return Fault(next(fitting, UNCLEAR), f"{wrong} hidden keys move a query that must not read them.")

    @law("A key where the mask is False gets no weight, and the others share it.", *BEFORE, name="mask")
    @masked
    def hides(self) -> Fault | None:
        return self.polarity()

    @law("A hidden key stays hidden however low the other scores are.", "mask")
    @masked
    def fill(self) -> Fault | None:
        for level in LEVELS:
            weight = self.leak(float(level))
            if not weight < 1e-3:
                message = (
                    f"Where the allowed key scores {-level:,}, hidden keys get a weight of {weight:.2g} instead of 0."
                )
                return Fault(SMALL, message)
        return None

    @law("A mask [B, 1, 1, S] hides each row's own padding.", "mask")
    @masked
    def padding(self) -> Fault | None:
        if self.reading is None:
            raise NotTestedError(UNREAD)
        try:
            seen = self.answer(PADDING)
        except CrashError as crash:
            return Fault(NO_BROADCAST, crash_of(crash))
        expected = self.predicted(PADDING, RIGHT)
        gap = (seen - expected).abs().max().item() if seen.shape == expected.shape else float("nan")
        return None if gap < TOLERANCE else Fault(NO_BROADCAST, f"With such a mask your output is {gap:.2g} off.")

    @law("A query that may read nothing gets zeros.", "mask", optional=True)
    @masked
    def empty_row(self) -> Fault | None:
        row = self.answer(EMPTY).select(-2, 0)
        if row.isnan().any():
            return Fault(ROW_NAN, f"{int(row.isnan().sum())} of {row.numel()} numbers of that query are NaN.")
        if self.reading is None:
            raise NotTestedError(UNREAD)
        largest = row.abs().max().item()
        return None if largest < 1e-7 else Fault(ROW_READS, f"It gets up to {largest:.2g} instead of 0.")

    @law("The gradient is finite where a query may read nothing.", "empty-row", optional=True)
    @masked
    def empty_gradient(self) -> Fault | None:
        slopes = torch.cat([each.flatten() for each in self.slopes(EMPTY)])
        broken = int((~slopes.isfinite()).sum())
        evidence = f"{broken} of {slopes.numel()} numbers of the gradient are not finite."
        return Fault(SLOPE_NAN, evidence) if broken else None

    @law("The mask works in float16.", "mask")
    @masked
    def float16(self) -> Fault | None:
        try:
            seen = self.in_half(MASK)
        except CrashError as crash:
            if "overflow" in str(crash.__cause__):
                return Fault(HALF, crash_of(crash))
            raise NotTestedError(f"it does not run in float16: {crash_of(crash)}") from None
        broken = int((~seen.isfinite()).sum())
        return Fault(HALF, f"{broken} of {seen.numel()} numbers are not finite in float16.") if broken else None


# --- functions that make masks and positions: causal, padding, packed documents

N = 5
LENGTHS = torch.tensor([3, 5, 1])

INVERTED_MASK = Mistake(
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
BACKWARD = Mistake(
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
MASK_SHAPE = Mistake(
    "the mask has the wrong shape",
    "Its shape does not fit the scores.",
    "Rows are queries, columns are keys. How many of each are there?",
)
OTHER_MASK = Mistake(
    "the mask is not the documented one",
    "It differs, and no mistake known here explains it.",
    "Print it for the smallest example that you can think of.",
)


class Made:
    """A mask of a documented shape, apart from axes of size 1, made by a learner's function."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Any], shape: tuple[int, ...], ways: list[Choice]
    ) -> None:
        self.made, self.wanted = in_order(function, *inputs), shape
        self.reading: Reading | None = None
        if isinstance(self.made, Tensor) and self.made.squeeze().shape == shape:
            self.truth = truth(self.made).reshape(shape)
            self.reading = read(self.truth, {"way": ways}, itself)

    @law("Its shape fits the scores.")
    def shape(self) -> Fault | None:
        evidence = f"It is {form(self.made)} and must be {self.wanted}, apart from axes of size 1."
        return None if hasattr(self, "truth") else Fault(MASK_SHAPE, evidence)

    @law("It holds True and False.", "shape")
    def boolean(self) -> Fault | None:
        return None if self.made.dtype == torch.bool else Fault(NUMBERS, f"It is {self.made.dtype}.")

    @law("It is the documented one.", "shape")
    def equation(self) -> Fault | None:
        evidence = f"{int(self.truth.sum())} of {self.truth.numel()} entries are True."
        return Fault(OTHER_MASK, evidence) if self.reading is None else None


def mask_of(law: str, prepare: Callable[[Callable[..., Any]], Made]) -> Subject:
    """Return the subject of functions that make a mask with this law."""
    return Subject(prepare, (Made.shape, Made.boolean, Made.equation, aspect("way", law, name="entries")))


def truth(mask: Tensor) -> Tensor:
    """Return a mask as booleans. If some numbers are very negative, those hide; otherwise zeros hide."""
    if mask.dtype == torch.bool:
        return mask
    return mask > -1e4 if bool((mask < -1e3).any()) else mask != 0


def causal_ways() -> list[Choice]:
    """Return causal masks, right and wrong."""
    wanted = Mask(causal=True).allowed(N, N, torch.device("cpu"))
    assert wanted is not None
    right, ones = wanted[0, 0], torch.ones(N, N, dtype=torch.bool)
    return [
        Choice(right),
        Choice(~right, "True above the diagonal", INVERTED_MASK),
        Choice(ones.tril(-1), "True below the diagonal alone", SELF),
        Choice(ones.tril(1), "True up to one above the diagonal", NEXT),
        Choice(ones.triu(0), "True on the diagonal and above it", BACKWARD),
        Choice(ones.triu(2), "True from two above the diagonal", INVERTED_MASK),
        Choice(ones, "True everywhere", OPEN),
    ]


def padding_ways() -> list[Choice]:
    """Return padding masks, right and wrong."""
    place, lengths = torch.arange(N), LENGTHS[:, None]
    return [
        Choice(place < lengths),
        Choice(place >= lengths, "True at padding", INVERTED_MASK),
        Choice(place <= lengths, "True up to `length`", LONG),
        Choice(place < lengths - 1, "True up to `length - 2`", SHORT),
        Choice(place >= N - lengths, "True at the end", LEFT),
        Choice(torch.ones(len(LENGTHS), N, dtype=torch.bool), "True everywhere", OPEN),
    ]


CAUSAL_MASK = mask_of(
    "A query may read itself and what comes before it.",
    lambda function: Made(function, (N,), (N, N), causal_ways()),
)
PADDING_MASK = mask_of(
    "True stands at the first `length` positions of each row.",
    lambda function: Made(function, (LENGTHS, N), (len(LENGTHS), N), padding_ways()),
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

        def given(keep: Tensor) -> Any:
            self.whole = function(keep)
            fits = isinstance(self.whole, Tensor) and self.whole.shape == KEEP.shape
            return at_tokens(self.whole.detach()) if fits else self.whole

        super().__init__(given, (KEEP,), {"way": COUNTS}, itself)

    count = aspect("way", "A token's position is the number of real tokens before it.", name="count")

    @law("Padding has a position that a table holds.", "count")
    def in_table(self) -> Fault | None:
        low, high = int(self.whole.min()), int(self.whole.max())
        if low >= 0 and high < KEEP.shape[1]:
            return None
        return Fault(NEGATIVE, f"For rows of {KEEP.shape[1]} they go from {low} to {high}.")


def at_tokens(positions: Tensor) -> Tensor:
    """Return positions with -1 at padding, where they are not compared."""
    return torch.where(KEEP, positions, -1)


COUNTS = [
    Choice(at_tokens(KEEP.cumsum(1) - 1)),
    Choice(at_tokens(torch.arange(KEEP.shape[1]).expand(KEEP.shape)), "every place counted", PADS_AS_PLACES),
    Choice(at_tokens(KEEP.cumsum(1)), "a start at 1", FROM_ONE),
    Choice(at_tokens(KEEP.cumsum(0) - 1), "a count along the batch", ALONG_BATCH),
    Choice(at_tokens((~KEEP).cumsum(1)), "padding counted", PADS_COUNTED),
]


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
        Choice(~right, "True where nothing may be read", INVERTED_MASK),
        Choice(back, "a causal mask alone", EACH_OTHER),
        Choice(same, "the document alone", AHEAD),
        Choice(same & ones.tril(-1), "the diagonal cut out", SELF),
        Choice(same & ones.tril(1), "one more key ahead", NEXT),
        Choice(back & (queries >= keys), "smaller numbers open too", ORDERED),
        Choice(back & (queries <= keys), "larger numbers open too", ORDERED),
        Choice(right[:1].expand(rows, -1, -1), "the mask of row 0 in each row", ONE_ROW),
        Choice(ones, "True everywhere", OPEN),
    ]


DOCUMENT_MASK = mask_of(
    "In its own document, a query may read itself and what comes before it.",
    lambda function: Made(function, (DOCUMENTS,), (2, 6, 6), document_ways()),
)
