"""Tests recomputation, an update in bfloat16, a classifier's head and an encoder of states, on doubles of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import (
    UNKNOWN,
    Choice,
    Heard,
    aspect,
    built,
    called,
    distance,
    drawn,
    forward_of,
    listening,
    read,
    scramble,
)
from glassformer.proof.check.encoder_decoder import IN_ENCODER
from glassformer.proof.check.labels import DIVISOR, PADS, SOFTMAX_TWICE
from glassformer.proof.check.property import Fault, Mistake, NotTestedError, Property, Subject, ask
from glassformer.proof.check.training import BATCHES, STILL, VOCAB, Recording, mean_loss, number

B, T, D, LABELS = 2, 6, 8, 5

# --- recomputation

LOST = Mistake(
    "the gradient is lost at the block",
    "The output is cut off from the block's weights or from its input, so nothing before it learns.",
    "Which of your two forward passes is recorded, and who calls backward on it?",
)
NOT_AGAIN = Mistake(
    "nothing is recomputed",
    "The block runs once, so all it made in between stays in memory until the backward pass.",
    "How often must the block run, if nothing inside it may be kept?",
)
OTHER_UNITS = Mistake(
    "the second forward drops other units",
    "Dropout draws anew in the second pass, so the gradient belongs to another output.",
    "What must be the same for both passes, besides the input?",
)


class Counted(nn.Module):
    """A block with dropout that counts how often it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop, self.count = nn.Parameter(drawn(D, D)), nn.Dropout(0.5), 0

    def forward(self, x: Tensor) -> Tensor:
        """Return a bent map of x, with dropout."""
        self.count += 1
        return self.drop((x @ self.weight).tanh())


class Recomputed:
    """The learner's `recomputed`, forwards and backwards, beside the block itself under the same seed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seen, self.slopes, self.count = self.run(training=True)
        self.wanted, self.right, _ = self.run(training=True, plain=True)

    def run(self, training: bool, plain: bool = False) -> tuple[Any, list[Tensor | None], int]:
        """Return the output, the gradients of x and of the weight, and how often the block ran."""
        block, x = Counted().train(training), drawn(B, T, D).requires_grad_()
        torch.manual_seed(5)
        seen = block(x) if plain else called(self.function, {"block": block, "x": x})
        torch.manual_seed(6)
        if isinstance(seen, Tensor) and seen.requires_grad:
            ask(seen.square().sum().backward)
        return seen, [x.grad, block.weight.grad], block.count


def same_value(learner: Recomputed) -> Fault | None:
    """Check the output."""
    seen = learner.seen
    gap = distance(seen.detach(), learner.wanted.detach()) if isinstance(seen, Tensor) else float("inf")
    return Fault(UNKNOWN, f"It differs from block(x) by {gap:.2g}.") if gap > 1e-9 else None


def arrives(learner: Recomputed) -> Fault | None:
    """Check that x and the weights get a gradient."""
    missing = [name for name, each in zip(("x", "the block's weight"), learner.slopes, strict=True) if each is None]
    return Fault(LOST, f"No gradient reaches {' and '.join(missing)}.") if missing else None


def again(learner: Recomputed) -> Fault | None:
    """Check that the block runs once forwards and once in the backward pass."""
    return (
        None if learner.count > 1 else Fault(NOT_AGAIN, f"Forwards and backwards, the block ran {learner.count} time.")
    )


def same_slopes(learner: Recomputed) -> Fault | None:
    """Check the gradients, and whether dropout spoils them."""

    def gap(slopes: list[Tensor | None], right: list[Tensor | None]) -> float:
        return max(distance(x, y) for x, y in zip(slopes, right, strict=True) if x is not None and y is not None)

    off = gap(learner.slopes, learner.right)
    if off < 1e-9:
        return None
    plain = gap(learner.run(training=False)[1], learner.run(training=False, plain=True)[1])
    told = f"With dropout, gradients are {off:.2g} off, without it {plain:.2g}."
    return Fault(OTHER_UNITS if plain < 1e-9 else UNKNOWN, told)


RECOMPUTED = Subject(
    Recomputed,
    (
        Property("value", "The output is that of the block.", same_value),
        Property("gradient", "A gradient reaches input and weights.", arrives, ("value",)),
        Property("again", "The block runs again in the backward pass.", again, ("gradient",)),
        Property("slopes", "Gradients are those of the block, with dropout too.", same_slopes, ("again",)),
    ),
)

# --- an update in bfloat16

FULL = Mistake(
    "nothing runs in bfloat16",
    "The model's maps run in float32, so nothing is saved.",
    "Which context tells torch to run the maps in another dtype?",
)
ROUNDED = Mistake(
    "the weights themselves are rounded",
    "After the update the weights are numbers of bfloat16, which a small step does not change at all.",
    "What must keep its 24 bits, so that a step of 1e-4 is not lost?",
)
HALF_LOSS = Mistake(
    "the loss is computed in half precision",
    "Exponentials of the logits are summed with 8 bits.",
    "Which dtype must the logits have before the softmax of the loss?",
)


class Wide(nn.Module):
    """A model in float32 that keeps the logits that it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(drawn(VOCAB, D).float()), nn.Linear(D, VOCAB)
        self.logits: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, T, V]."""
        logits = self.head(self.table[ids])
        self.logits = logits.detach()
        return logits


class HalfStep:
    """The learner's `train_step_bf16`, called once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        torch.manual_seed(0)
        self.model = Wide()
        self.begin = [each.detach().clone() for each in self.model.parameters()]
        given = {"model": self.model, "inputs": BATCHES[0][0], "targets": BATCHES[0][1]}
        self.loss = called(function, {**given, "optimizer": Recording(self.model.parameters(), [])})
        self.after = [each.detach() for each in self.model.parameters()]


def rounded(x: Tensor) -> bool:
    """Whether all numbers are ones of bfloat16."""
    return x.dtype == torch.bfloat16 or torch.equal(x.to(torch.bfloat16).to(x.dtype), x)


def runs_half(learner: HalfStep) -> Fault | None:
    """Check the dtype of the logits."""
    logits = learner.model.logits
    kind = "none" if logits is None else str(logits.dtype)
    return None if logits is not None and logits.dtype == torch.bfloat16 else Fault(FULL, f"The head gave {kind}.")


def whole_weights(learner: HalfStep) -> Fault | None:
    """Check that the weights are float32, and not rounded."""
    told = f"The table is {learner.after[0].dtype}, and all its numbers are ones of bfloat16."
    return Fault(ROUNDED, told) if rounded(learner.after[0]) else None


def moved(learner: HalfStep) -> Fault | None:
    """Check that the weights move."""
    gap = max(distance(x.double(), y.double()) for x, y in zip(learner.after, learner.begin, strict=True))
    return None if gap > 0 else Fault(STILL, "After the call all weights are as before.")


def whole_loss(learner: HalfStep) -> Fault | None:
    """Check that the loss was summed in float32."""
    loss = number(learner.loss)
    if loss is None or learner.model.logits is None:
        return Fault(UNKNOWN, f"It returns {type(learner.loss).__name__} and must return the loss.")
    right = mean_loss(learner.model.logits.float(), BATCHES[0][1]).double()
    gap = distance(loss, right)
    if gap < 1e-5:
        return None
    told = f"It is {gap:.2g} off the loss of the same logits in float32."
    return Fault(HALF_LOSS if rounded(loss.float()) or gap < 0.05 else UNKNOWN, told)


TRAIN_STEP_BF16 = Subject(
    HalfStep,
    (
        Property("moves", "The weights move.", moved),
        Property("weights", "The weights stay in float32.", whole_weights),
        Property("bfloat16", "The maps run in bfloat16.", runs_half, ("weights",)),
        Property("loss", "The loss is summed in float32.", whole_loss, ("bfloat16",)),
    ),
)

# --- a classifier

IDS = torch.tensor([[3, 1, 4, 1, 5, 2], [2, 6, 5, 0, 0, 0]])
LENGTHS = torch.tensor([6, 3])
REAL = torch.arange(T) < LENGTHS[:, None]


class Encoder(nn.Module):
    """An encoder of width `d_model` in which each position adds twice the mean of those that the mask allows."""

    d_model = D

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Parameter(drawn(8, D)), nn.LayerNorm(D)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return vectors [B, T, D]."""
        return encoded(self.table, ids, mask if mask is None else mask.reshape(len(ids), -1, ids.shape[1])[:, 0])


def encoded(table: Tensor, ids: Tensor, keep: Tensor | None) -> Tensor:
    """Return the encoder's vectors."""
    x = table[ids]
    weights = (torch.ones_like(ids) if keep is None else keep).to(x.dtype)[..., None]
    return x + 2 * (x * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)


class Classifying:
    """The learner's `Classifier` around our encoder."""

    def __init__(self, kind: Any) -> None:
        self.module = scramble(built(kind, {"encoder": Encoder(), "n_outputs": LABELS}))
        forward_of(self.module, "ids", "lengths")
        self.table = next(each.detach() for each in self.module.parameters() if each.shape == (8, D))
        with listening(self.module) as heard, torch.no_grad():
            self.seen = ask(self.module, IDS, LENGTHS)
        maps = [each for each in heard if isinstance(each.module, nn.Linear)]
        self.head: Heard | None = maps[-1] if maps else None
        self.reading = None
        if maps and maps[0].given.shape == (B, D):
            pool = [
                Choice("right"),
                Choice("all", "all places averaged", PADS),
                Choice("divisor", "a division by all places", DIVISOR),
            ]
            mask = [Choice(True), Choice(False, "the encoder without a mask", IN_ENCODER)]
            self.reading = read(maps[0].given, {"pool": pool, "mask": mask}, self.pooled)

    def pooled(self, pool: str, mask: bool) -> Tensor:
        """Return the vectors that the first map gets under a reading."""
        x = encoded(self.table, IDS, REAL if mask else None)
        return (
            x.mean(1)
            if pool == "all"
            else (x * REAL[..., None]).sum(1) / (T if pool == "divisor" else LENGTHS[:, None])
        )


def label_shape(learner: Classifying) -> Fault | None:
    """Check that there is a logit for each label."""
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    return None if got == (B, LABELS) else Fault(UNKNOWN, f"It is {got} and must be {(B, LABELS)}.")


def pooled(learner: Classifying) -> Fault | None:
    """Check that the result was understood."""
    if learner.head is None:
        raise NotTestedError("its map to the labels (nn.Linear) could not be found")
    return None if learner.reading is not None else Fault(UNKNOWN, "What its first map reads is no known mean.")


def bare_logits(learner: Classifying) -> Fault | None:
    """Check that logits are returned, and no probabilities."""
    if learner.head is None:
        raise NotTestedError("its map to the labels (nn.Linear) could not be found")
    gap = distance(learner.seen, learner.head.gave)
    soft = min(distance(learner.seen, each(learner.head.gave, -1)) for each in (torch.softmax, torch.log_softmax))
    return (
        Fault(SOFTMAX_TWICE if soft < 1e-9 else UNKNOWN, f"It is {gap:.2g} off the map's output.")
        if gap > 1e-9
        else None
    )


CLASSIFIER = Subject(
    Classifying,
    (
        Property("shape", "There is one logit for each label.", label_shape),
        Property("equation", "The mean of the encoder's vectors goes into the map.", pooled, ("shape",)),
        Property("mean", "The mean goes over real tokens.", aspect("pool"), ("equation",)),
        Property("mask", "The encoder is given the mask.", aspect("mask"), ("equation",)),
        Property("logits", "Logits are returned.", bare_logits, ("shape",)),
    ),
)

# --- states

FEATURES = 3
OTHER_DATA = Mistake(
    "the scale comes from other data",
    "States are scaled by the mean and deviation of the batch at hand, not by those that were fitted.",
    "Which data may a scale come from, when the model later meets a single state?",
)
NOT_SCALED = Mistake(
    "the states are not scaled",
    "They go into the map as they are, whatever was fitted.",
    "Where does forward use what fit has kept?",
)
CONSTANT = Mistake(
    "a constant feature gives NaN",
    "The deviation of a feature that never changes is 0, and something is divided by it.",
    "What must stand in place of a deviation of 0?",
)
MEAN, STD = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([2.0, 0.5, 3.0]).double()
STATES = drawn(B, T, FEATURES)


def scaled(way: str) -> Tensor:
    """Return what the map reads under a reading."""
    if way == "batch":
        return (STATES - STATES.mean((0, 1))) / STATES.std((0, 1))
    if way == "batch, biased":
        return (STATES - STATES.mean((0, 1))) / STATES.std((0, 1), correction=0)
    return STATES if way == "raw" else (STATES - MEAN) / STD


class States:
    """The learner's `StateEncoder`, fitted to a mean and a deviation."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.seen, heard = self.run(STD)
        self.reading = None
        if heard:
            ways = [
                Choice("right"),
                Choice("batch", "the batch's own mean and deviation", OTHER_DATA),
                Choice("batch, biased", "the batch's own mean and deviation", OTHER_DATA),
                Choice("raw", "states as they are", NOT_SCALED),
            ]
            self.reading = read(heard[0].given, {"way": ways}, scaled, 1e-4)

    def run(self, std: Tensor) -> tuple[Any, list[Heard]]:
        """Return the output for the states, and the calls of linear maps."""
        module = scramble(built(self.kind, {"n_features": FEATURES, "d_model": D}))
        fit = getattr(module, "fit", None)
        if fit is None:
            raise NotTestedError("it has no fit(mean, std)")
        ask(fit, MEAN.clone(), std.clone())
        with listening(module) as heard, torch.no_grad():
            seen = ask(module, STATES)
        return seen, [each for each in heard if isinstance(each.module, nn.Linear)]


def one_each(learner: States) -> Fault | None:
    """Check that there is one vector for each state."""
    got = tuple(learner.seen.shape) if isinstance(learner.seen, Tensor) else type(learner.seen).__name__
    return None if got == (B, T, D) else Fault(UNKNOWN, f"It is {got} and must be {(B, T, D)}.")


def understood(learner: States) -> Fault | None:
    """Check that what the map reads was understood."""
    return None if learner.reading is not None else Fault(UNKNOWN, "Its map reads no known scaling of the states.")


def constant(learner: States) -> Fault | None:
    """Check a feature with a deviation of 0."""
    seen = learner.run(STD * torch.tensor([1.0, 0.0, 1.0]))[0]
    broken = int((~seen.isfinite()).sum())
    return (
        Fault(CONSTANT, f"With a deviation of 0, {broken} of {seen.numel()} numbers are not finite.")
        if broken
        else None
    )


STATE_ENCODER = Subject(
    States,
    (
        Property("shape", "There is one vector for each state.", one_each),
        Property("equation", "The map reads scaled states.", understood, ("shape",)),
        Property("scale", "States are scaled by what was fitted.", aspect("way"), ("equation",)),
        Property("constant", "A deviation of 0 gives numbers.", constant, ("scale",)),
    ),
)
