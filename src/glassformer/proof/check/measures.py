"""Tests a learner's own measures of a model (order, influence) on models whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from glassformer.base.shapes import Tensor
from glassformer.proof.check.calling import Choice, Computed, aspect, called, distance, drawn, itself
from glassformer.proof.check.property import Fault, Mistake, law
from glassformer.proof.check.training import LEFT_EVALUATING, LEFT_TRAINING

B, T, D = 2, 5, 3
X = drawn(B, T, D)

EXCHANGED_AXES = Mistake(
    "rows and columns are exchanged",
    "Queries stand where keys should stand.",
    "Which of the two does a row stand for: the position that reads, or the one that is read?",
)


class Model(nn.Module):
    """A model with a known answer, which counts its calls in training mode."""

    def __init__(self, answer: Callable[[Tensor], Tensor], drops: bool = False) -> None:
        super().__init__()
        self.answer = answer
        self.dropout = nn.Dropout(0.5 if drops else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the answer, with dropout in training mode where there is any."""
        return self.dropout(self.answer(x))


CHANGED = Mistake(
    "the input is changed",
    "After the call the caller's x holds other numbers.",
    "Which of your lines writes into x itself, and not into a copy?",
)


class Instrument:
    """A learner's instrument, called with models of ours that come in evaluation mode."""

    laws = "input restored"
    call: Callable[[nn.Module, Tensor], Any]
    given: Tensor
    """What it is given, in a copy that it may have changed: `x`."""
    x: Tensor

    def fresh(self) -> nn.Module:
        """Return a model that it can be called with."""
        return Model(lambda x: x)

    def mode(self, training: bool) -> bool:
        """Return the mode of a model after the call, if it came in this mode."""
        model = self.fresh().train(training)
        self.call(model, self.given.clone())
        return model.training

    @law("The model goes in the mode in which it came.")
    def restored(self) -> Fault | None:
        if not self.mode(training=True):
            return Fault(LEFT_EVALUATING, "It came with model.training True and goes with False.")
        evidence = "It came with model.training False and goes with True."
        return Fault(LEFT_TRAINING, evidence) if self.mode(training=False) else None

    @law("The input stays as it is.")
    def input(self) -> Fault | None:
        gap = distance(self.x, self.given)
        return Fault(CHANGED, f"It differs by up to {gap:.2g}.") if gap > 0 else None


# --- a set or a sequence

NOT_BACK = Mistake(
    "the output is not put back in order",
    "The output for the reordered input is compared with the output as it was.",
    "Position 0 of the reordered run stands for which position of the other run?",
)
OTHER_AXIS = Mistake(
    "the batch is reordered",
    "The order is applied to the rows of the batch, which do not know each other.",
    "Which axis of x is the sequence?",
)
CANCEL = Mistake(
    "differences cancel",
    "Positive and negative differences are averaged.",
    "Can a mean of differences be 0 although none of them is?",
)
WITH_DROPOUT = Mistake(
    "the gap is measured with dropout",
    "Two runs of a model in training mode differ by chance alone.",
    "In which mode must a model be, so that two runs can be compared?",
)
ORDER = torch.tensor([2, 0, 4, 1, 3])
ROWS = drawn(T, T, D)
"""As many rows as positions, so that the order fits both axes."""
PLACES = torch.arange(1.0, T + 1, dtype=torch.float64)[:, None]
SEES: dict[str, Callable[[Tensor], Tensor]] = {
    "a set": lambda x: x + x.mean(1, keepdim=True),
    "positions": lambda x: x * PLACES,
    "sorted": lambda x: x.sort(1)[0],
}


def gaps(gap: Callable[[Callable[[Tensor], Tensor]], Tensor]) -> Tensor:
    """Return the gap of each model."""
    return torch.stack([gap(each) for each in SEES.values()])


def apart(model: Callable[[Tensor], Tensor]) -> Tensor:
    """Return how the output for the reordered input differs from the output in that order."""
    return model(ROWS[:, ORDER]) - model(ROWS)[:, ORDER]


GAPS = [
    Choice(gaps(lambda model: apart(model).abs().max())),
    Choice(
        gaps(lambda model: (model(ROWS[:, ORDER]) - model(ROWS)).abs().max()), "the output in the first order", NOT_BACK
    ),
    Choice(gaps(lambda model: (model(ROWS[ORDER]) - model(ROWS)[ORDER]).abs().max()), "the rows reordered", OTHER_AXIS),
    Choice(gaps(lambda model: apart(model).mean()), "the mean of the differences", CANCEL),
    Choice(gaps(lambda model: apart(model).mean().abs()), "the mean of the differences", CANCEL),
    Choice(gaps(lambda model: apart(model).max()), "the largest signed difference", CANCEL),
]


class Gap(Instrument, Computed):
    """The learner's `order_gap`."""

    laws = "input equation gap dropout restored"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.call = lambda model, x: called(function, {"model": model, "x": x, "order": ORDER})
        self.given, self.x = ROWS, ROWS.clone()
        found = [self.call(Model(each).eval(), self.x) for each in SEES.values()]
        numbers = all(isinstance(each, float | int | Tensor) for each in found)
        seen: Any = torch.tensor([float(each) for each in found], dtype=torch.float64) if numbers else found[0]
        super().__init__(seen, {"way": GAPS}, itself, 1e-9)

    equation = replace(Computed.equation, needs=("input",))
    gap = aspect("way", "0 for a set, the largest difference for a sequence.", name="gap")

    @law("A model in training mode is measured without dropout.", "gap")
    def dropout(self) -> Fault | None:
        gap = float(self.call(Model(SEES["a set"], drops=True).train(), ROWS.clone()))
        evidence = f"A set with dropout, in training mode, gets {gap:.2g} instead of 0."
        return Fault(WITH_DROPOUT, evidence) if gap > 1e-9 else None


# --- who notices

ALL_AT_ONCE = Mistake(
    "more than one position is moved",
    "Every run moves all positions, so each output changes whichever is asked about.",
    "How many positions must differ between two runs, so that you know which one was noticed?",
)
ONLY_LAST = Mistake(
    "only the last position is watched",
    "All rows of the table tell what the last output notices.",
    "For each position that is moved, how many outputs can change?",
)
HIDDEN = Mistake(
    "dropout hides the answer",
    "In training mode two runs differ by chance, so every output seems to notice everything.",
    "In which mode must a model be, so that two runs can be compared?",
)
NOTICES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "causal": (lambda x: x.cumsum(1), torch.ones(T, T).tril().bool()),
    "off by one": (
        lambda x: torch.cat([x.cumsum(1)[:, 1:], x.cumsum(1)[:, -1:]], 1),
        torch.ones(T, T).tril(1).bool(),
    ),
    "full": (lambda x: x + x.mean(1, keepdim=True), torch.ones(T, T).bool()),
    "none": (lambda x: x * PLACES, torch.eye(T).bool()),
    "first": (lambda x: x[:, :1].expand(x.shape) * PLACES, (torch.arange(T) == 0).expand(T, T)),
}
"""Models, and which of their outputs (rows) notice which position (columns)."""


TRUTH = torch.stack([truth for _, truth in NOTICES.values()]).double()
TABLES = [
    Choice(TRUTH),
    Choice(TRUTH.mT, "rows and columns exchanged", EXCHANGED_AXES),
    Choice(TRUTH.amax(2, keepdim=True).expand(TRUTH.shape), "all positions moved", ALL_AT_ONCE),
    Choice(TRUTH[:, -1:].expand(TRUTH.shape), "the last output alone", ONLY_LAST),
]


class Influence(Instrument, Computed):
    """The learner's `influence`."""

    laws = "input equation table dropout restored"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.call = lambda model, x: called(function, {"model": model, "x": x})
        self.given, self.x = X, X.clone()
        inputs = [self.x, *(X.clone() for _ in range(len(NOTICES) - 1))]
        found = [self.call(Model(each).eval(), x) for (each, _), x in zip(NOTICES.values(), inputs, strict=True)]
        fits = all(isinstance(each, Tensor) and each.shape in ((T, T), (T,)) for each in found)
        seen: Any = torch.stack([each.expand(T, T) for each in found]).double() if fits else found[0]
        super().__init__(seen, {"way": TABLES}, itself, 0.0)

    equation = replace(Computed.equation, needs=("input",))
    table = aspect("way", "Entry (t, s) says whether moving s changes output t.", name="table")

    @law("A model in training mode is looked at without dropout.", "table")
    def dropout(self) -> Fault | None:
        answer, truth = NOTICES["none"]
        seen = self.call(Model(answer, drops=True).train(), X.clone())
        wrong = int((seen.bool() != truth).sum())
        evidence = f"For a model with dropout, in training mode, {wrong} of {T * T} entries are wrong."
        return Fault(HIDDEN, evidence) if wrong else None
