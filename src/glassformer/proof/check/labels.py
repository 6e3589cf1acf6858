"""Tests what is predicted and what counts: shifts, loss, accuracy, pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import Choice, Computed, aspect, drawn, in_order, one_of, refuse_unlike
from glassformer.proof.check.property import Fault, Mistake, Subject, ask, law
from glassformer.train.cross_entropy import cross_entropy

PAD = 0
TARGETS = torch.tensor([[5, 1, 2, 6, 4], [3, 1, PAD, PAD, PAD]])
KEEP = TARGETS != PAD

POOLED = torch.tensor([[True, True, True, True, False], [True, True, False, False, False]])


LOGITS = drawn(2, 5, 7)
VECTORS = drawn(2, 5, 4)

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


def pooled(mean: str) -> Tensor:
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
    }[mean]


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


class Answered(Computed):
    """A learner's function, called once, with inputs in the documented order."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        aspects: Mapping[str, Sequence[Choice]],
        compute: Callable[..., Tensor],
        tolerance: float = 1e-6,
    ) -> None:
        self.function = function
        super().__init__(in_order(function, *inputs), aspects, compute, tolerance)


class Loss(Answered):
    """The learner's `cross_entropy`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, (LOGITS, TARGETS, PAD), {"mean": MEANS, "value": VALUES}, loss)

    mean = aspect("mean", "The mean goes over targets that are no padding.")
    value = aspect("value", "Each target costs -log of its probability.")

    @law("Large logits give a number.", "equation")
    def large_logits(self) -> Fault | None:
        seen = float(ask(self.function, LOGITS.float() * 1_000, TARGETS, PAD))
        return None if math.isfinite(seen) else Fault(OVERFLOW, f"With logits up to 3,000 the loss is {seen}.")


def right(mean: str) -> Tensor:
    """Return the accuracy under a reading."""
    return over((LOGITS_RIGHT.argmax(-1) == TARGETS).double(), KEEP, mean)


LOGITS_RIGHT = LOGITS.clone()
LOGITS_RIGHT[0, :3] = 0
LOGITS_RIGHT[0, :3].scatter_(-1, TARGETS[0, :3, None], 5.0)
LOGITS_RIGHT[1, 1:4] = 0
LOGITS_RIGHT[1, 1:4].scatter_(-1, TARGETS[1, 1:4, None], 5.0)
"""Right: three of five targets in row 0, one of two in row 1, and two of row 1's three paddings."""

ACCURACY = Subject(
    lambda function: Answered(function, (LOGITS_RIGHT, TARGETS, PAD), {"mean": MEANS}, right),
    (Answered.equation, Loss.mean),
)
POOL = Subject(
    lambda function: Answered(function, (VECTORS, POOLED), {"mean": POOLS}, pooled),
    (Answered.equation, aspect("mean", "The mean goes over positions that are no padding.")),
)


TOKENS = torch.tensor([[5, 9, 2, 7, 4, 8], [3, 1, 6, 2, 9, 5]])

UNSHIFTED = Mistake(
    "labels are not shifted",
    "Each position must predict the token that it reads, so the model learns to copy its input.",
    "What does a language model read at position t, and what must it predict?",
)
SHIFTED_TWICE = Mistake(
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
READS_AHEAD = Mistake(
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
    Choice((slice(0, -2), slice(2, None)), "labels two ahead", SHIFTED_TWICE),
    Choice((slice(0, -1), slice(2, None)), "labels two ahead", SHIFTED_TWICE),
    Choice((slice(1, None), slice(0, -1)), "labels one behind", BACKWARDS),
    Choice((slice(None), slice(1, None)), "all the inputs", UNCUT),
]
ALONE = [
    Choice(slice(1, None)),
    Choice(slice(0, -1), "the inputs as labels", UNSHIFTED),
    Choice(slice(None), "the inputs as labels", UNSHIFTED),
    Choice(slice(2, None), "labels two ahead", SHIFTED_TWICE),
]


class Shift(Answered):
    """The learner's `shift_labels`. A pair is compared as one tensor of both."""

    def __init__(self, function: Callable[..., Any]) -> None:
        pair = False

        def given(tokens: Tensor) -> Any:
            nonlocal pair
            answer = function(tokens)
            pair = isinstance(answer, tuple | list) and len(answer) == 2
            return joined(*answer) if pair and all(isinstance(each, Tensor) for each in answer) else answer

        refuse_unlike(function, "tokens")
        ask(given, TOKENS)
        super().__init__(given, (TOKENS,), {"shift": SHIFTS if pair else ALONE}, shifted)

    shift = aspect("shift", "Label t is the token after input t.")


def shifted(shift: Any) -> Tensor:
    """Return inputs and labels, each a slice of the tokens; or the labels alone, for one slice."""
    return TOKENS[:, shift] if isinstance(shift, slice) else joined(*(TOKENS[:, each] for each in shift))


def joined(inputs: Tensor, labels: Tensor) -> Tensor:
    """Return both side by side, with -1 in between, so that a column missing in one cannot be made up by the other."""
    between = torch.full((inputs.shape[0], 1), -1, dtype=inputs.dtype)
    return torch.cat([inputs, between, labels.to(inputs.dtype)], 1)


START = 11
FRONT, MOST = torch.full((len(TOKENS), 1), START), TOKENS[:, :-1]
RIGHT = [
    Choice(torch.cat([FRONT, MOST], 1)),
    Choice(TOKENS, "the labels themselves", UNMOVED),
    Choice(torch.cat([TOKENS[:, 1:], FRONT], 1), "labels one ahead", READS_AHEAD),
    Choice(TOKENS.roll(1, 1), "the last label in front", OTHER_START),
    Choice(torch.cat([FRONT * 0, MOST], 1), "0 in front", OTHER_START),
    Choice(torch.cat([FRONT * 0 + TOKENS[0, -1], MOST], 1), "the last label's id in front of every row", OTHER_START),
    Choice(torch.cat([TOKENS[:, :1], MOST], 1), "the first label twice", OTHER_START),
    Choice(torch.cat([FRONT, TOKENS], 1), "start_id and all labels", NOT_CUT),
]
SHIFT_RIGHT = one_of(
    "shift", "Input 0 is start_id, input t + 1 is label t.", lambda function: in_order(function, TOKENS, START), RIGHT
)
