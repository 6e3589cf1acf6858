"""Tests an update, an evaluation and an update in bfloat16, on doubles that record their calls."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import UNKNOWN, Choice, Reading, aspect, called, distance, drawn, read
from glassformer.proof.check.labels import BY_ROW, DIVISOR, PADS, SUM, over
from glassformer.proof.check.property import CrashError, Fault, Mistake, Property, crash_of, law

VOCAB, WIDTH, STEEP, RATE, CLIP = 7, 8, 30.0, 0.1, 1.0
"""`STEEP` makes the gradient longer than `CLIP`."""
Pair = tuple[Tensor, Tensor]


def batch(*rows: str) -> Pair:
    """Return inputs and targets of rows written as digits, half and half; 0 is padding."""
    ids = torch.tensor([[int(digit) for digit in row] for row in rows])
    return ids.chunk(2, 1)[0], ids.chunk(2, 1)[1]


class Mode(NamedTuple):
    """How the model was called: its mode, and whether gradients were recorded."""

    training: bool
    gradients: bool


class Double(nn.Module):
    """A model whose logits are rows of a table, times `STEEP`. It records how it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(drawn(VOCAB, VOCAB) / STEEP)
        self.modes: list[Mode] = []

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, T, V]."""
        self.modes.append(Mode(self.training, torch.is_grad_enabled()))
        return logits_of(self.table, ids)


def logits_of(table: Tensor, ids: Tensor) -> Tensor:
    """Return the double's logits for a table."""
    return table[ids] * STEEP


def losses_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return -log p of each target."""
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


def mean_loss(logits: Tensor, targets: Tensor, mean: str = "right") -> Tensor:
    """Return the loss under a reading of the mean; 0 is padding."""
    return over(losses_of(logits, targets), targets != 0, mean)


MEANS = [
    Choice("right"),
    Choice("all", "all places counted", PADS),
    Choice("divisor", "a division by all places", DIVISOR),
    Choice("rows", "a mean of means by row", BY_ROW),
    Choice("sum", "the sum", SUM),
]


# --- one update

KEPT = Mistake(
    "old gradients are kept",
    "The gradient of the update before is still there, and the new one is added to it.",
    "Who stores the gradients, and until when?",
)
ERASED = Mistake(
    "the gradient is erased before the step",
    "The gradients are set to zero after the backward pass, so the optimizer finds nothing.",
    "Which gradients must be forgotten: those of the last update, or of this one?",
)
CLIPPED_EARLY = Mistake(
    "clipping comes before the gradient",
    "When the gradients are clipped, the backward pass has not made them yet.",
    "At which of the six verbs is the gradient there, and not yet used?",
)
UNCLIPPED = Mistake(
    "the gradient is not clipped",
    "A gradient longer than clip moves the weights by its whole length.",
    "What must be done with a gradient longer than clip, and where in your function?",
)
STILL = Mistake(
    "the weights do not move",
    "After the call all weights are as before.",
    "Which of the six verbs changes the weights?",
)
GRAPH = Mistake(
    "the loss keeps the graph",
    "The loss is returned with all the tensors that it was made of, which stay in memory as long as the number.",
    "What turns a tensor of one number into a number?",
)
IN_EVALUATION = Mistake(
    "the model is trained in evaluation mode",
    "The forward pass runs in evaluation mode, so dropout drops nothing.",
    "Which mode must the model be in before it is called?",
)
LATE_LOSS = Mistake(
    "the loss is that after the update",
    "It is computed again with the weights that were just changed.",
    "Which weights made the mistake that the update corrects?",
)
CUT_OFF = Mistake(
    "no gradient reaches the model",
    "Between logits and loss the graph is cut, or the loss never goes backwards.",
    "Follow the loss back to the weights: where does the path end?",
)
NOT_THE_UPDATE = Mistake(
    "the update is not the documented one",
    "The weights move, but not by the learning rate times the clipped gradient of the mean loss.",
    "Compute the new value of one weight by hand, from its gradient.",
)
BATCHES = (batch("12345600", "34002100"), batch("51265400", "61504320"))
"""Two batches for two updates; rows have 2 to 4 real targets of 4."""


class Recording:
    """Plain gradient descent that records its calls; no torch.optim, whose first use takes seconds to load."""

    def __init__(self, parameters: Iterable[nn.Parameter], events: list[str]) -> None:
        self.events = events
        self.param_groups: list[dict[str, Any]] = [{"params": [*parameters], "lr": RATE}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.events.append("zero")
        for each in self.param_groups[0]["params"]:
            each.grad = None if set_to_none or each.grad is None else torch.zeros_like(each)

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights."""
        self.events.append("step")
        for each in self.param_groups[0]["params"]:
            if each.grad is not None:
                each -= RATE * each.grad


@contextmanager
def clips_noted(events: list[str]) -> Generator[None]:
    """Record, while the context lasts, when one of torch's functions that clip gradients is called."""
    before = sys.getprofile()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event == "call" and frame.f_code.co_name.startswith("clip_grad"):
            events.append("clip")

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


UPDATES = {
    "old": [Choice("forgotten"), Choice("kept", "the gradient of the first update added", KEPT)],
    "clip": [Choice(True), Choice(False, "the whole gradient", UNCLIPPED)],
    "mean": MEANS,
    "when": [Choice("before"), Choice("after", "the loss after the update", LATE_LOSS)],
}


class Stepping:
    """The learner's `train_step`, called for two updates in a row."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.events = function, list[str]()
        self.model = Double()
        self.begin = self.model.table.detach().clone()
        self.model.table.register_post_accumulate_grad_hook(self.arrived)
        optimizer = Recording(self.model.parameters(), self.events)
        self.losses: list[Any] = []
        self.between = self.begin
        self.crash: CrashError | None = None
        with clips_noted(self.events):
            try:
                for pair in BATCHES:
                    self.losses.append(self.step(self.model, pair, optimizer))
                    if len(self.losses) == 1:
                        self.between = self.model.table.detach().clone()
            except CrashError as crash:
                if "does not require grad" not in str(crash.__cause__):
                    raise
                self.crash = crash
        self.first_loss = number(self.losses[0]) if self.losses else None
        self.table = self.model.table.detach()
        self.reading: Reading | None = None
        if self.first_loss is not None:
            self.reading = read(self.result(self.table, self.first_loss), UPDATES, self.under, 1e-6)

    def step(self, model: nn.Module, pair: Pair, optimizer: Recording) -> Any:
        """Call the learner's function."""
        given = {"model": model, "inputs": pair[0], "targets": pair[1], "optimizer": optimizer}
        return called(self.function, given, {"clip": CLIP})

    def arrived(self, weights: Tensor) -> None:
        """Record that a gradient has been made."""
        del weights
        self.events.append("backward")

    @staticmethod
    def result(table: Tensor, loss: Tensor) -> Tensor:
        """Return weights and loss as one tensor, as clipping hides from the weights by what the loss is divided."""
        return torch.cat([table.flatten(), loss.reshape(1)])

    def under(self, old: str, clip: bool, mean: str, when: str) -> Tensor:
        """Return the table after two updates and the loss of the first, under a reading."""
        (inputs, targets), seen = BATCHES[0], self.begin if when == "before" else self.between
        return self.result(self.moved(old, clip, mean), mean_loss(logits_of(seen, inputs), targets, mean))

    def moved(self, old: str, clip: bool, mean: str) -> Tensor:
        """Return the table after two updates under a reading."""
        table, gradient = self.begin, torch.zeros_like(self.begin)
        for inputs, targets in BATCHES:
            leaf = table.clone().requires_grad_()
            new = torch.autograd.grad(mean_loss(logits_of(leaf, inputs), targets, mean), leaf)[0]
            gradient = new + gradient if old == "kept" else new
            if clip:
                gradient = gradient * min(1.0, CLIP / (gradient.norm().item() + 1e-6))
            table = table - RATE * gradient
        return table

    @law("The loss goes back to the weights.")
    def gradient(self) -> Fault | None:
        if self.crash is not None:
            return Fault(CUT_OFF, crash_of(self.crash))
        return None if "backward" in self.events else Fault(CUT_OFF, "No weight has got a gradient in two updates.")

    @law("The weights move.", "gradient")
    def moves(self) -> Fault | None:
        if distance(self.table, self.begin) > 0:
            return None
        evidence = f"The calls are {', '.join(self.events)}."
        order = [each for each in self.events if each != "clip"]
        erased = ("backward", "zero") in pairwise(order) and "step" in order
        return Fault(ERASED if erased else STILL, evidence)

    @law("The model is called in training mode.")
    def mode(self) -> Fault | None:
        modes = self.model.modes
        return None if modes[0].training else Fault(IN_EVALUATION, "When it is called, model.training is False.")

    @law("A model is put into training mode.", "gradient", "mode", optional=True)
    def sets_mode(self) -> Fault | None:
        model = Double().eval()
        self.step(model, BATCHES[0], Recording(model.parameters(), []))
        evidence = "A model that comes in evaluation mode is called in it."
        return None if model.modes[0].training else Fault(IN_EVALUATION, evidence)

    @law("It returns one number.", "gradient")
    def returns(self) -> Fault | None:
        evidence = f"It returns {type(self.losses[0]).__name__} and must return the loss." if self.losses else ""
        return Fault(UNKNOWN, evidence) if self.first_loss is None else None

    @law("Two calls are two steps along the clipped gradient.", "moves", "mode", "returns")
    def update(self) -> Fault | None:
        if self.reading is not None:
            return None
        gap = distance(self.table, self.moved("forgotten", True, "right"))
        evidence = f"After two updates the weights are {gap:.2g} off; the loss is {self.first_loss:.4g}."
        return Fault(NOT_THE_UPDATE, evidence)

    fresh = aspect("old", "The gradient of the update before is forgotten.", needs=("update",), name="fresh")

    @law("A gradient longer than clip is cut to it.", "update")
    def clip(self) -> Fault | None:
        fault = aspect("clip", "").probe(self)
        if fault is None:
            return None
        early = next(each for each in self.events if each in ("clip", "backward")) == "clip"
        return Fault(CLIPPED_EARLY, f"The calls are {', '.join(self.events)}.") if early else fault

    mean = aspect("mean", "The mean goes over targets that are no padding.", needs=("update",))
    loss = aspect("when", "The loss before the update is returned.", needs=("update",), name="loss")

    @law("What is returned holds no graph.", "returns")
    def graph(self) -> Fault | None:
        loss = self.losses[0]
        holds = isinstance(loss, Tensor) and loss.requires_grad
        return Fault(GRAPH, "It returns a tensor that requires a gradient.") if holds else None


def number(value: object) -> Tensor | None:
    """Return one number as a tensor in float64; None for anything else."""
    if isinstance(value, Tensor):
        return value.detach().double().reshape(()) if value.numel() == 1 else None
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float | int) else None


# --- an evaluation

DROPPING = Mistake(
    "dropout is active in evaluation",
    "The model is called in training mode, so the figures are those of a model with parts missing.",
    "Which mode must the model be in while it is scored?",
)
LEFT_EVALUATING = Mistake(
    "the model stays in evaluation mode",
    "A model that came in training mode is given back in evaluation mode, and trains without dropout from then on.",
    "In which mode did the model come, and in which does it go?",
)
LEFT_TRAINING = Mistake(
    "the model is left in training mode",
    "A model that came in evaluation mode is given back in training mode.",
    "In which mode did the model come, and in which does it go?",
)
BY_BATCH = Mistake(
    "batches weigh the same",
    "Means of batches are averaged, so a row of a small batch counts more than one of a large batch.",
    "A batch of 2 and one of 64: who counts more?",
)
RECORDED = Mistake(
    "gradients are recorded",
    "Every batch keeps its graph until the end, although nothing is to be learned.",
    "Which context tells torch that nothing will go backwards?",
)
LAST_BATCH = Mistake(
    "only the last batch is counted",
    "The figures are those of the last batch alone.",
    "Where are the sums of the batches before kept?",
)
ONLY_LISTS = Mistake(
    "only a list of batches is read",
    "Batches that come one after another, from a generator, fail or give other figures.",
    "Must you know how many batches there are, or read them twice?",
)
NOTHING = Mistake(
    "no batches give figures",
    "Without a single batch it returns figures instead of an error.",
    "What is the mean of nothing?",
)
SCORED = (batch("12345600", "34002100", "51261400"), batch("31156240"), batch("25104000", "42016530"))
FIGURES = {
    "loss": ("loss",),
    "accuracy": ("accuracy", "acc"),
    "exact_match": ("exact_match", "exact", "sequence_accuracy"),
}


def totals(figure: str, pair: Pair, pads: bool) -> tuple[float, float]:
    """Return a figure's sum over a batch, and how many things were added; with `pads`, padding counts too."""
    inputs, targets = pair
    logits = logits_of(drawn(VOCAB, VOCAB) / STEEP, inputs)
    real = torch.ones_like(targets, dtype=torch.bool) if pads else targets != 0
    right = logits.argmax(-1) == targets
    if figure == "exact_match":
        rows = real.any(-1)
        return float(((right | ~real).all(-1) & rows).sum()), float(rows.sum())
    values = losses_of(logits, targets) if figure == "loss" else right.double()
    return (values * real).sum().item(), float(real.sum())


def scored(figure: str, over: str) -> Tensor:
    """Return a figure under a reading."""
    pairs = [totals(figure, each, over == "pads") for each in SCORED]
    if over == "batches":
        return torch.tensor(sum(total / number for total, number in pairs) / len(pairs), dtype=torch.float64)
    if over == "last":
        pairs = pairs[-1:]
    return torch.tensor(sum(each[0] for each in pairs) / sum(each[1] for each in pairs), dtype=torch.float64)


OVER = [
    Choice("all"),
    Choice("batches", "a mean of means by batch", BY_BATCH),
    Choice("last", "the last batch alone", LAST_BATCH),
    Choice("pads", "padding counted", PADS),
]


def figure(name: str, law: str, *needs: str) -> Property:
    """Return the property that one figure is right."""

    def probe(learner: Scoring) -> Fault | None:
        found = learner.readings[name]
        if found is not None:
            return found.fault("over")
        return Fault(UNKNOWN, f"{name} is {learner.seen[name]:.4f} and must be {scored(name, 'all'):.4f}.")

    return Property(name.replace("_", "-"), law, probe, needs)


class Scoring:
    """The learner's `evaluate`, called with a list of three batches for a model in training mode."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.model = Double().train()
        self.seen = self.figures(self.model, [*SCORED])
        self.readings = {
            name: read(value, {"over": OVER}, partial(scored, name), 1e-5) for name, value in self.seen.items()
        }

    def figures(self, model: nn.Module, batches: Any) -> dict[str, Tensor]:
        """Call the learner's function, and return its figures by our names."""
        found = called(self.function, {"model": model, "batches": batches})
        if not isinstance(found, Mapping):
            return {}
        given = {name: next((found[key] for key in keys if key in found), None) for name, keys in FIGURES.items()}  # pyright: ignore[reportUnknownVariableType]
        numbers = {name: number(value) for name, value in given.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return {name: value for name, value in numbers.items() if value is not None}

    @law("It gives loss, accuracy and exact_match.", name="figures")
    def all_figures(self) -> Fault | None:
        missing = [name for name in FIGURES if name not in self.seen]
        return Fault(UNKNOWN, f"Its result has no {', '.join(missing)}.") if missing else None

    @law("The model is called in evaluation mode.")
    def mode(self) -> Fault | None:
        evidence = "When it is called, model.training is True."
        return Fault(DROPPING, evidence) if any(each.training for each in self.model.modes) else None

    @law("No gradients are recorded.")
    def gradients(self) -> Fault | None:
        recorded = [each for each in self.model.modes if each.gradients]
        return Fault(RECORDED, f"In {len(recorded)} of {len(self.model.modes)} calls.") if recorded else None

    @law("The model goes in the mode in which it came.")
    def restored(self) -> Fault | None:
        if not self.model.training:
            return Fault(LEFT_EVALUATING, "It came with model.training True and goes with False.")
        model = Double().eval()
        self.figures(model, [*SCORED])
        return Fault(LEFT_TRAINING, "It came with model.training False and goes with True.") if model.training else None

    loss = figure("loss", "Every real target counts the same.", "figures")
    accuracy = figure("accuracy", "Every real target counts the same.", "figures", "loss")
    exact_match = figure("exact_match", "Every row counts the same.", "figures", "loss")

    @law("Batches may come one by one.", "figures")
    def generator(self) -> Fault | None:
        try:
            seen = self.figures(Double().train(), iter(SCORED))
        except CrashError as crash:
            return Fault(ONLY_LISTS, crash_of(crash))
        gap = max((distance(seen[name], value) for name, value in self.seen.items() if name in seen), default=math.inf)
        return Fault(ONLY_LISTS, f"From a generator, a figure is {gap:.2g} off.") if gap > 1e-6 else None

    @law("No batches are an error.", "figures", optional=True)
    def nothing(self) -> Fault | None:
        try:
            seen = self.figures(Double().train(), [])
        except CrashError:
            return None
        return Fault(NOTHING, f"It returns { ({name: each.item() for name, each in seen.items()}) }.")


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
        self.table, self.head = nn.Parameter(drawn(VOCAB, WIDTH).float()), nn.Linear(WIDTH, VOCAB)
        self.logits: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [B, T, V]."""
        logits = self.head(self.table[ids])
        self.logits = logits.detach()
        return logits


def rounded(x: Tensor) -> bool:
    """Whether all numbers are ones of bfloat16."""
    return x.dtype == torch.bfloat16 or torch.equal(x.to(torch.bfloat16).to(x.dtype), x)


class HalfStep:
    """The learner's `train_step_bf16`, called once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        torch.manual_seed(0)
        self.model = Wide()
        self.begin = [each.detach().clone() for each in self.model.parameters()]
        given = {"model": self.model, "inputs": BATCHES[0][0], "targets": BATCHES[0][1]}
        self.loss = called(function, {**given, "optimizer": Recording(self.model.parameters(), [])})
        self.after = [each.detach() for each in self.model.parameters()]

    @law("The weights move.")
    def moves(self) -> Fault | None:
        gap = max(distance(x.double(), y.double()) for x, y in zip(self.after, self.begin, strict=True))
        return None if gap > 0 else Fault(STILL, "After the call all weights are as before.")

    @law("The weights stay in float32.")
    def weights(self) -> Fault | None:
        evidence = f"The table is {self.after[0].dtype}, and all its numbers are ones of bfloat16."
        return Fault(ROUNDED, evidence) if rounded(self.after[0]) else None

    @law("The maps run in bfloat16.", "weights")
    def bfloat16(self) -> Fault | None:
        kind = "none" if self.model.logits is None else self.model.logits.dtype
        return None if kind == torch.bfloat16 else Fault(FULL, f"The head gave {kind}.")

    @law("The loss is summed in float32.", "bfloat16", name="loss")
    def whole_loss(self) -> Fault | None:
        loss = number(self.loss)
        if loss is None or self.model.logits is None:
            return Fault(UNKNOWN, f"It returns {type(self.loss).__name__} and must return the loss.")
        right = mean_loss(self.model.logits.float(), BATCHES[0][1]).double()
        gap = distance(loss, right)
        if gap < 1e-5:
            return None
        evidence = f"It is {gap:.2g} off the loss of the same logits in float32."
        return Fault(HALF_LOSS if rounded(loss.float()) or gap < 0.05 else UNKNOWN, evidence)
