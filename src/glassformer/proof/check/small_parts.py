"""Tests the small parts of a transformer: softmax, splitting and merging heads, feed-forward, norm, embedding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import (
    TOLERANCE,
    Choice,
    Computed,
    Heard,
    aspect,
    built,
    called,
    constructed,
    distance,
    drawn,
    forward_of,
    itself,
    listening,
    means,
    parameters_of,
    repeated,
    scramble,
    shaped,
)
from glassformer.proof.check.heads import ACROSS, MERGE, SPLIT, D, merge, split
from glassformer.proof.check.mask import HEADS, WIDTH
from glassformer.proof.check.property import CrashError, Fault, Mistake, NotTestedError, Subject, ask, crash_of, law

B, T, F, VOCAB = 2, 5, 20, 30

X = drawn(B, T, D)


# --- softmax

OVER_ALL = Mistake(
    "the softmax runs over all entries",
    "The exponentials are divided by the sum of the whole tensor, so no row sums to 1.",
    "What must the sum along dim be?",
)
DIM_IGNORED = Mistake(
    "the argument dim is ignored",
    "The weights sum to 1 along the last axis, whichever axis is asked for.",
    "Where does your code use dim?",
)
BASE_TWO = Mistake(
    "the base is 2 instead of e", "Powers of 2 stand in place of exponentials.", "Which number is raised to the score?"
)
NO_EXPONENTIAL = Mistake(
    "the weights are not exponentials",
    "The scores are made positive in another way, so a difference of scores is no ratio of weights.",
    "What should happen to the weights when 1 is added to every score?",
)
LARGE_SCORES = Mistake(
    "large scores overflow",
    "The exponential of a large score is infinite, and infinity divided by infinity is no number.",
    "Subtracting one number per row from all its scores changes nothing. Which number helps?",
)
FAR_ROW = Mistake(
    "a row far below the others gives NaN",
    "The maximum of the whole tensor is subtracted, so all exponentials of a low row are 0.",
    "Which scores must be compared with the maximum: all, or those of one row?",
)


SCORES = drawn(2, 3, 4)


def along(softmax: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Return the results for each axis, side by side."""
    return torch.stack([softmax(SCORES, dim) for dim in (-1, 0, 1)])


SOFTMAX = [
    Choice(along(lambda x, dim: x.softmax(dim))),
    Choice(along(lambda x, dim: x.exp() / x.exp().sum()), "the sum of all entries", OVER_ALL),
    Choice(
        along(lambda x, dim: (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum()),
        "the sum of all entries",
        OVER_ALL,
    ),
    Choice(along(lambda x, dim: x.softmax(-1)), "the last axis each time", DIM_IGNORED),
    Choice(along(lambda x, dim: (x * 0.6931471805599453).softmax(dim)), "powers of 2", BASE_TWO),
    Choice(along(lambda x, dim: x.abs() / x.abs().sum(dim, keepdim=True)), "absolute values", NO_EXPONENTIAL),
    Choice(along(lambda x, dim: x.square() / x.square().sum(dim, keepdim=True)), "squares", NO_EXPONENTIAL),
]


class Softmax(Computed):
    """The learner's function, called along each axis."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        answers = [self.call(SCORES.clone(), dim) for dim in (-1, 0, 1)]
        fits = all(isinstance(each, Tensor) and each.shape == SCORES.shape for each in answers)
        super().__init__(torch.stack(answers) if fits else answers[0], {"way": SOFTMAX}, itself, TOLERANCE)

    def call(self, scores: Tensor, dim: int = -1) -> Any:
        """Call the learner's function."""
        return called(self.function, {"scores": scores, "dim": dim})

    softmax = aspect("way", "The weights are exponentials that sum to 1 along dim.", name="softmax")

    @law("Large scores and minus infinity give numbers.", "softmax")
    def large(self) -> Fault | None:
        scores = torch.tensor([[1000.0, 999.0, float("-inf")]], dtype=torch.float64)
        seen = self.call(scores)
        evidence = f"For scores 1000, 999, -inf it gives {seen.tolist()}."
        return None if distance(seen, scores.softmax(-1)) < 1e-9 else Fault(LARGE_SCORES, evidence)

    @law("Each row stands alone.", "large")
    def far_rows(self) -> Fault | None:
        seen = self.call(torch.tensor([[0.0, 1.0], [-2000.0, -2001.0]], dtype=torch.float64))
        evidence = f"For scores -2000, -2001 below 0, 1 it gives {seen[1].tolist()}."
        return Fault(FAR_ROW, evidence) if seen.isnan().any() else None


# --- heads

EVERY_HTH = Mistake(
    "heads take every H-th number",
    "Head h gets the columns h, h + H, h + 2H, ... instead of a slice of neighbours.",
    "Which columns of a position belong to head 0?",
)
NOT_CONTIGUOUS = Mistake(
    "it fails on a tensor that is not contiguous",
    "A view needs numbers that lie in memory in the order of the shape, and after a transpose they do not.",
    "What may stand between a transpose and a view, or which other word does both?",
)


class Reshaped(Computed):
    """A function that moves numbers: its result for 0, 1, 2, ..., or the error of a view that is not possible."""

    def __init__(
        self, call: Callable[[Tensor], Any], shape: tuple[int, ...], ways: Sequence[Choice], made: Any
    ) -> None:
        self.call, self.crash = call, None
        self.numbers = torch.arange(B * T * D, dtype=torch.float64).view(shape)
        try:
            seen = call(self.numbers)
        except CrashError as crash:
            if "view size is not compatible" not in str(crash.__cause__):
                raise
            self.crash, seen = crash, made(self.numbers, "right")
        super().__init__(seen, {"how": ways}, partial(made, self.numbers), TOLERANCE)

    @law("It works for tensors that are not contiguous.")
    def contiguous(self) -> Fault | None:
        try:
            if self.crash is not None:
                raise self.crash
            self.call(self.numbers.mT.contiguous().mT)
        except CrashError as crash:
            return Fault(NOT_CONTIGUOUS, crash_of(crash))
        return None


def moves(law: str, prepare: Callable[[Callable[..., Any]], Reshaped]) -> Subject:
    """Return the subject of functions that move numbers by this law."""
    return Subject(prepare, (Reshaped.equation, aspect("how", law, name="split"), Reshaped.contiguous))


SPLITS = [
    Choice("right"),
    Choice("reshaped", "a reshape to [B, H, T, K]", SPLIT),
    Choice("strided", "every H-th number", EVERY_HTH),
    Choice("across", "a result of shape [B, T, H, K]", ACROSS),
]
MERGES = [
    Choice("right"),
    Choice("reshaped", "a reshape from [B, H, T, K]", MERGE),
    Choice("strided", "every H-th number", EVERY_HTH),
]
SPLIT_HEADS = moves(
    "Head h gets columns hK to (h+1)K of every position.",
    lambda function: Reshaped(lambda x: called(function, {"x": x, "n_heads": HEADS}), (B, T, D), SPLITS, split),
)
MERGE_HEADS = moves(
    "Each position gets its own heads back, in order.",
    lambda function: Reshaped(lambda x: called(function, {"x": x}), (B, HEADS, T, WIDTH), MERGES, partial(merge, T=T)),
)


# --- feed-forward

INNER = Mistake(
    "the inner width is not d_ff",
    "The last map reads vectors of another width than d_ff.",
    "How wide is the vector between the two maps, and where does d_ff enter?",
)
MIXES = Mistake(
    "positions are mixed",
    "Moving one position changes the output at another; only attention may do that.",
    "Along which axis do your maps run?",
)
LINEAR = Mistake(
    "the feed-forward has no activation",
    "What leaves the first map goes into the second unchanged, and two linear maps in a row are one.",
    "What stands between the two maps in equation 2 of the paper?",
)
LATE = Mistake(
    "the activation stands after the last map",
    "Nothing stands between the maps; the result of both is bent.",
    "Between which two maps does the activation stand in equation 2 of the paper?",
)
SECOND = Mistake(
    "an activation follows the last map",
    "The output of the last map is changed before it is returned, so a branch can, for example, only add.",
    "Which values can your branch add to the stream: positive and negative ones?",
)
RESIDUAL = Mistake(
    "the residual stands inside the feed-forward",
    "The module adds its own input to its output; a block that does the same then adds it twice.",
    "Whose task is the residual connection: the feed-forward's, or the block's?",
)
SHAPE = Mistake(
    "the output has the wrong shape",
    "There must be one vector of width d_model for each position.",
    "Write the shape beside each line, for sizes that all differ.",
)


class FeedForward:
    """The learner's module, with the recorded calls of its linear maps."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.module = kind, constructed(kind, {"d_model": D}, {"d_ff": F})
        forward_of(self.module, "x")
        with listening(self.module) as heard:
            self.seen = self.run(X)
        self.maps = [each for each in heard if isinstance(each.module, nn.Linear)]

    def run(self, x: Tensor) -> Any:
        """Return the module's output."""
        with torch.no_grad():
            return ask(self.module, x)

    @law("There is one vector of width d_model for each position.")
    def shape(self) -> Fault | None:
        return shaped(self.seen, (*X.shape,), SHAPE)

    repeatable = repeated(lambda learner: learner.run(X))

    @law("Every position is treated by itself.", "repeatable")
    def positions(self) -> Fault | None:
        other = X.clone()
        other[:, 2] += 1.0
        gap = distance(self.run(other)[:, [0, 1, 3, 4]], self.seen[:, [0, 1, 3, 4]])
        return Fault(MIXES, f"Moving position 2 changes other positions by {gap:.2g}.") if gap > 1e-9 else None

    def two_maps(self) -> tuple[Heard, Heard]:
        """Return the calls of the first and the last map. Errors: `NotTestedError` for a module without two."""
        if len(self.maps) < 2:
            raise NotTestedError("its linear maps (nn.Linear) could not be found")
        return self.maps[0], self.maps[-1]

    @law("The vector between the maps has width d_ff.", "positions")
    def inner_width(self) -> Fault | None:
        width = self.two_maps()[1].widths[0]
        if width != F and not any(means(name, "d_ff") for name in inspect.signature(self.kind).parameters):
            other = constructed(self.kind, {"d_model": D}, {"d_ff": F + 1})
            if [each.shape for each in other.parameters()] == [each.shape for each in self.module.parameters()]:
                raise NotTestedError(f"it is given no d_ff; the vector is {width / D:g} times as wide as the model")
        return None if width == F else Fault(INNER, f"With d_ff {F}, the last map reads vectors of width {width}.")

    @law("An activation stands between the maps, and nothing after them.", "positions")
    def activation(self) -> Fault | None:
        first, last = self.two_maps()
        straight = distance(first.gave, last.given) == 0
        if distance(self.seen, last.gave) <= 1e-9:
            return Fault(LINEAR, "What the first map gives is what the second one reads.") if straight else None
        if distance(self.seen, last.gave + X) <= 1e-9:
            return Fault(RESIDUAL, "The output is that of the last map plus the input.")
        gap = distance(self.seen, last.gave)
        return Fault(LATE if straight else SECOND, f"The output differs from that of the last map by {gap:.2g}.")


# --- layer norm

UNBIASED = Mistake(
    "the variance is unbiased",
    "The squares are divided by d_model - 1: an error of 15 % at width 8 that hides in a wide model.",
    "By how many numbers do you divide the sum of the squares?",
)
OUTSIDE = Mistake(
    "eps stands outside the root",
    "eps is added to the deviation and not to the variance.",
    "To which of the two does the paper of layer normalisation add eps?",
)
CONSTANT = Mistake(
    "a constant row gives NaN",
    "The variance of a constant row is 0, and 0 is divided by 0.",
    "What is eps for?",
)
OVER_POSITIONS = Mistake(
    "the norm runs over the positions",
    "Mean and variance are taken over the sequence, so padding and neighbours change a position's vector.",
    "Over which axis does one position's vector lie?",
)
OVER_TENSOR = Mistake(
    "the norm runs over the whole tensor",
    "Mean and variance are those of all numbers of the batch.",
    "Over which axis does one position's vector lie?",
)
NO_SHIFT = Mistake(
    "the shift is missing",
    "There is no learned vector that is added after the scale.",
    "How many learned vectors has a layer norm?",
)
ZERO_WEIGHT = Mistake(
    "the weight starts at 0",
    "Every output is 0 at the start, and the branch gets no gradient.",
    "By what must a fresh norm multiply, so that it does nothing but normalise?",
)
NOT_CENTRED = Mistake(
    "the mean is not subtracted",
    "The numbers are divided, but not centred.",
    "What is the mean of your output before scale and shift?",
)


def normed(weight: Tensor, bias: Tensor, axis: str, variance: str, eps: str, mean: str, shift: str) -> Tensor:
    """Return the normalised X under a reading."""
    axes = {"width": (-1,), "positions": (1,), "all": (0, 1, 2)}[axis]
    centre = X.mean(axes, keepdim=True)
    spread = X.var(axes, correction=int(variance == "unbiased"), keepdim=True)
    root = {
        "inside": (spread + 1e-5).sqrt(),
        "small": (spread + 1e-6).sqrt(),
        "outside": spread.sqrt() + 1e-5,
        "small, outside": spread.sqrt() + 1e-6,
        "none": spread.sqrt(),
    }[eps]
    scaled = (X - centre if mean == "subtracted" else X) / root * weight
    return scaled + bias if shift == "added" else scaled


NORMS = {
    "axis": [
        Choice("width"),
        Choice("positions", "a norm over positions", OVER_POSITIONS),
        Choice("all", "a norm over all numbers", OVER_TENSOR),
    ],
    "variance": [Choice("biased"), Choice("unbiased", "a division by d_model - 1", UNBIASED)],
    "eps": [
        Choice("inside"),
        Choice("small"),
        Choice("outside", "eps added to the deviation", OUTSIDE),
        Choice("small, outside", "eps added to the deviation", OUTSIDE),
        Choice("none", "no eps"),
    ],
    "mean": [Choice("subtracted"), Choice("kept", "no subtraction", NOT_CENTRED)],
    "shift": [Choice("added"), Choice("missing", "no shift", NO_SHIFT)],
}


class Norm(Computed):
    """The learner's norm with random scale and shift."""

    def __init__(self, kind: Any) -> None:
        module = built(kind, {"d_model": D}, {"eps": 1e-5})
        self.start = parameters_of(module)
        self.module = scramble(module)
        forward_of(self.module, "x")
        self.vectors = [each.detach() for each in self.module.parameters()]
        weight = self.vectors[0] if self.vectors else torch.ones(D, dtype=torch.float64)
        bias = self.vectors[1] if len(self.vectors) > 1 else torch.zeros(D, dtype=torch.float64)
        super().__init__(self.run(X), NORMS, partial(normed, weight, bias), 1e-9)
        self.reading = self.reading if weight.shape == bias.shape == (D,) else None

    def run(self, x: Tensor) -> Any:
        """Return the module's output."""
        with torch.no_grad():
            return ask(self.module, x)

    axis = aspect("axis", "Mean and variance are those of one position.")
    mean = aspect("mean", "The mean is subtracted.")
    variance = aspect("variance", "The squares are divided by d_model.")
    eps = aspect("eps", "eps is added to the variance.")

    @law("A constant row gives numbers.", "equation")
    def constant(self) -> Fault | None:
        finite = self.run(torch.full((1, 1, D), 3.0, dtype=torch.float64)).isfinite().all()
        return None if finite else Fault(CONSTANT, "A row of twelve threes gives numbers that are not finite.")

    shift = aspect("shift", "A learned vector is added.")

    @law("A scale that starts at 1 and a shift follow.")
    def affine(self) -> Fault | None:
        if len(self.vectors) < 2:
            return Fault(NO_SHIFT, f"It has {len(self.vectors)} learned vectors.")
        scale = next(iter(self.start.values()))
        return None if scale.any() else Fault(ZERO_WEIGHT, "All numbers of its scale are 0 at the start.")


# --- embedding

UNSCALED = Mistake(
    "embeddings are not scaled",
    "The rows of the table are returned as they are, so positions can drown the tokens.",
    "Which factor does section 3.4 of the paper name?",
)
DIVIDED = Mistake(
    "the embedding is divided by the root",
    "The root of d_model stands on the wrong side of the fraction.",
    "Should the factor make a token's vector longer or shorter?",
)
WHOLE_WIDTH = Mistake(
    "the factor is d_model instead of its root",
    "The rows are multiplied by d_model.",
    "How long is a row drawn with a deviation of 1/√d_model?",
)
PLAIN_TABLE = Mistake(
    "the table is not a parameter",
    "No parameter has a row for each id, so nothing is learned.",
    "How does a module learn of a tensor that is to be trained?",
)
AT_START = Mistake(
    "the factor is only in the start values",
    "The table begins √d_model times larger, but nothing keeps it so.",
    "What happens to your factor in training?",
)
IDS = torch.tensor([[3, 29, 0, 3, 8], [1, 2, 28, 7, 7]])


FACTORS = [
    Choice(D**0.5),
    Choice(1.0, "the factor 1", UNSCALED),
    Choice(D**-0.5, "the factor 1/√d_model", DIVIDED),
    Choice(float(D), "the factor d_model", WHOLE_WIDTH),
]


class Embedding(Computed):
    """The learner's embedding, and its table."""

    laws = "parameter equation factor"

    def __init__(self, kind: Any) -> None:
        module = built(kind, {"vocab_size": VOCAB, "d_model": D})
        self.fresh = [each for each in parameters_of(module).values() if each.shape == (VOCAB, D)]
        module = scramble(module)
        forward_of(module, "ids")
        self.tables = [each for each in parameters_of(module).values() if each.shape == (VOCAB, D)]
        with torch.no_grad():
            seen = ask(module, IDS)
        self.rows = self.tables[0][IDS] if self.tables else X
        super().__init__(seen, {"factor": FACTORS}, self.times, TOLERANCE)

    def times(self, factor: float) -> Tensor:
        """Return the rows under a reading."""
        return self.rows * factor

    @law("The table is a parameter.")
    def parameter(self) -> Fault | None:
        return None if self.tables else Fault(PLAIN_TABLE, f"No parameter has the shape ({VOCAB}, {D}).")

    equation = replace(
        Computed.equation, law="The result is a row of the table for each id, times a factor.", needs=("parameter",)
    )

    @law("The factor is √d_model.", "equation")
    def factor(self) -> Fault | None:
        fault = aspect("factor", "").probe(self)
        deviation = self.fresh[0].std().item()
        if fault is not None and fault.mistake is UNSCALED and deviation > 2:
            evidence = f"The table starts with a deviation of {deviation:.2g}, and its rows are returned as they are."
            return Fault(AT_START, evidence)
        return fault
