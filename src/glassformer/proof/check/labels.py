"""Tests a learner's `cross_entropy`, `accuracy` and `mean_pool`: what counts, and how much."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.attention import accepts
from glassformer.proof.check.reading import Choice, Reading, aspect, distance, read
from glassformer.proof.check.table import Fault, Mistake, Property, SignatureError, Subject, ask
from glassformer.train.cross_entropy import cross_entropy

PAD = 0
TARGETS = torch.tensor([[5, 1, 2, 6, 4], [3, 1, PAD, PAD, PAD]])
KEEP = TARGETS != PAD

POOLED = torch.tensor([[True, True, True, True, False], [True, True, False, False, False]])


def drawn(*shape: int) -> Tensor:
    """Return random numbers that are the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)


LOGITS = drawn(2, 5, 7)
VECTORS = drawn(2, 5, 4)

UNKNOWN = Mistake(
    "the result is not the documented one",
    "The numbers differ, and no mistake known here explains them.",
    "Take two tokens and compute the result by hand.",
)
PADS = Mistake(
    "padding is counted",
    "Positions whose target is padding enter the result.",
    "How many targets of your batch are real, and by what number do you divide?",
)
DIVISOR = Mistake(
    "padding is counted in the divisor",
    "Padding adds nothing to the sum, but the sum is divided by all positions.",
    "How many targets of your batch are real, and by what number do you divide?",
)
BY_ROW = Mistake(
    "each sequence weighs the same",
    "Means of rows are averaged, so a token of a short sequence counts more than one of a long sequence.",
    "Is the mean of means the mean?",
)
SUM = Mistake(
    "the sum is given instead of the mean",
    "The result grows with the number of targets.",
    "What must the loss of two equal batches together be?",
)
SOFTMAX_TWICE = Mistake(
    "the softmax is applied twice",
    "Probabilities go into a function that expects logits, so they are flattened a second time.",
    "What does the function that you call expect: logits, probabilities, or their logarithms?",
)
BITS = Mistake(
    "the loss is in bits, not in nats", "The logarithm has the base 2.", "Which logarithm is the natural one?"
)
NEGATIVE = Mistake(
    "the sign is wrong",
    "The result falls where the right tokens become less likely.",
    "Should a better model have a smaller loss?",
)
SHIFTED = Mistake(
    "labels are shifted twice",
    "The loss shifts targets that were shifted already, so each position must predict the token after the next.",
    "Count every place between file and loss at which something moves by one.",
)
PAD_HITS = Mistake(
    "only padding is counted",
    "The mask is inverted: positions whose target is padding are the only ones that enter.",
    "Where is your mask True?",
)
OVERFLOW = Mistake(
    "large logits overflow",
    "The exponential of a large logit is infinite, and the loss is not a number.",
    "Can you compute the logarithm of the sum without the sum itself?",
)


def nll() -> Tensor:
    """Return -log p of each target, from our own cross-entropy."""
    losses = [
        cross_entropy(each[None], target[None])[0]
        for each, target in zip(LOGITS.flatten(0, 1), TARGETS.flatten(), strict=True)
    ]
    return torch.stack(losses).view_as(KEEP)


def over(values: Tensor, keep: Tensor, how: str) -> Tensor:
    """Return the mean over the kept values, right or with a known mistake."""
    kept = values * keep
    if how == "all":
        return values.mean()
    if how == "divisor":
        return kept.sum() / keep.numel()
    if how == "rows":
        return (kept.sum(1) / keep.sum(1)).mean()
    if how == "sum":
        return kept.sum()
    return values[~keep].mean() if how == "pads" else kept.sum() / keep.sum()


MEANS = [
    Choice("right"),
    Choice("all", "all positions counted", PADS),
    Choice("divisor", "a division by all positions", DIVISOR),
    Choice("rows", "a mean of means by row", BY_ROW),
    Choice("sum", "the sum", SUM),
    Choice("pads", "only padding", PAD_HITS),
]


def loss(mean: str, value: str) -> Tensor:
    """Return the loss under a reading."""
    if value == "shifted":
        logs = LOGITS[:, :-1].log_softmax(-1)
        values = -logs.gather(-1, TARGETS[:, 1:, None])[..., 0]
        return over(values, KEEP[:, 1:], "right" if mean == "right" else mean)
    values = nll()
    if value == "twice":
        values = -LOGITS.softmax(-1).log_softmax(-1).gather(-1, TARGETS[..., None])[..., 0]
    factor = {"bits": 1 / math.log(2), "negative": -1.0}.get(value, 1.0)
    return over(values * factor, KEEP, mean)


VALUES = [
    Choice("right"),
    Choice("shifted", "another shift inside", SHIFTED),
    Choice("twice", "probabilities in place of logits", SOFTMAX_TWICE),
    Choice("bits", "the logarithm to base 2", BITS),
    Choice("negative", "the other sign", NEGATIVE),
]


def pooled(over: str) -> Tensor:
    """Return the mean vector under a reading."""
    keep = POOLED[..., None]
    total = (VECTORS * keep).sum(1)
    return {
        "right": total / keep.sum(1),
        "all": VECTORS.mean(1),
        "divisor": total / keep.shape[1],
        "sum": total,
        "pads": (VECTORS * ~keep).sum(1) / (~keep).sum(1).clamp(min=1),
        "first": VECTORS[:, 0],
    }[over]


POOLS = [
    *(each for each in MEANS if each.value != "rows"),
    Choice(
        "first",
        "the first vector alone",
        Mistake(
            "only the first position is used",
            "The vector of position 0 is returned, not a mean.",
            "Is this pooling by mean, or by first token?",
        ),
    ),
]


class Answered:
    """A learner's function, called once."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        aspects: Mapping[str, Sequence[Choice]],
        compute: Callable[..., Tensor],
    ) -> None:
        if not accepts(function, *["x"] * len(inputs)):
            raise SignatureError(f"{inspect.signature(function)}")
        self.function = function
        self.seen = ask(function, *inputs)
        if isinstance(self.seen, float | int):
            self.seen = torch.tensor(float(self.seen), dtype=torch.float64)
        self.wanted = compute(**{name: choices[0].value for name, choices in aspects.items()})
        self.reading: Reading | None = (
            read(self.seen, aspects, compute, 1e-6) if isinstance(self.seen, Tensor) else None
        )


def known(learner: Answered) -> Fault | None:
    """Check that the result is the documented one, or that of a known mistake."""
    if learner.reading is not None:
        return None
    if not isinstance(learner.seen, Tensor):
        return Fault(UNKNOWN, f"It returns {type(learner.seen).__name__}.")
    got, wanted = tuple(learner.seen.shape), tuple(learner.wanted.shape)
    gap = distance(learner.seen, learner.wanted)
    return Fault(UNKNOWN, f"It is {got} and must be {wanted}." if got != wanted else f"It is {gap:.2g} off.")


def large(learner: Answered) -> Fault | None:
    """Check that the loss is finite for large logits."""
    seen = ask(learner.function, LOGITS.float() * 1_000, TARGETS, PAD)
    return (
        None if math.isfinite(float(seen)) else Fault(OVERFLOW, f"With logits up to 3,000 the loss is {float(seen)}.")
    )


def right(values: str) -> Tensor:
    """Return the accuracy under a reading."""
    return over((LOGITS_RIGHT.argmax(-1) == TARGETS).double(), KEEP, values)


LOGITS_RIGHT = LOGITS.clone()
LOGITS_RIGHT[0, :3] = 0
LOGITS_RIGHT[0, :3].scatter_(-1, TARGETS[0, :3, None], 5.0)
LOGITS_RIGHT[1, 1:4] = 0
LOGITS_RIGHT[1, 1:4].scatter_(-1, TARGETS[1, 1:4, None], 5.0)
"""Right: three of five targets in row 0, one of two in row 1, and two of row 1's three paddings."""

KNOWN = Property("equation", "The result is the documented one.", known)
LOSS = Subject(
    lambda function: Answered(function, (LOGITS, TARGETS, PAD), {"mean": MEANS, "value": VALUES}, loss),
    (
        KNOWN,
        Property("mean", "The mean goes over targets that are no padding.", aspect("mean"), ("equation",)),
        Property("value", "Each target costs -log of its probability.", aspect("value"), ("equation",)),
        Property("large-logits", "Large logits give a number.", large, ("equation",)),
    ),
)
ACCURACY = Subject(
    lambda function: Answered(function, (LOGITS_RIGHT, TARGETS, PAD), {"values": MEANS}, right),
    (KNOWN, Property("mean", "The mean goes over targets that are no padding.", aspect("values"), ("equation",))),
)
POOL = Subject(
    lambda function: Answered(function, (VECTORS, POOLED), {"over": POOLS}, pooled),
    (KNOWN, Property("mean", "The mean goes over positions that are no padding.", aspect("over"), ("equation",))),
)
