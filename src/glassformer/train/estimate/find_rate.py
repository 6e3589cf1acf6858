"""The learning-rate range test: one short run in which the rate rises exponentially, on a copy of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.errors import ConfigError, DivergedError
from glassformer.model.transformer import Transformer
from glassformer.train.loop import train_steps
from glassformer.train.optim.schedule import Schedule

MEMORY = 0.9
"""Share of the smoothed loss that the next one keeps."""
TOO_HIGH = 2.0
"""A smoothed loss of so many times the lowest so far ends the test."""


class Tried(NamedTuple):
    """One update of the test."""

    rate: float
    loss: float
    """Before the update, in nats a target."""
    smoothed: float


class Found(NamedTuple):
    """What the test says."""

    tried: list[Tried]
    lowest: float
    """The rate at which the smoothed loss is lowest."""
    recommended: float
    """A tenth of that."""

    @property
    def rises(self) -> bool:
        """Whether the loss was seen to rise beyond `lowest`; else the test ended there."""
        return self.tried[-1].rate > self.lowest


@dataclass(frozen=True)
class Sweep(Schedule):
    """least * (peak / least)^((step - 1) / (steps - 1)): from `least` to `peak`, by the same factor each step."""

    def __call__(self, step: int) -> float:
        """The learning rate of the update number `step`."""
        return self.least * (self.peak / self.least) ** ((step - 1) / max(1, self.steps - 1))


def find_learning_rate(
    model: Transformer,
    batches: Iterable[Batch],
    optimizer: Callable[[Transformer], torch.optim.Optimizer],
    *,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
    **settings: Any,
) -> Found:
    """The learning-rate range test (Smith 2017, section 3.3, with an exponential in place of a linear rise).

    `optimizer` makes one for a copy of the model, which is thrown away; `settings` are those of `train_steps`. The test
    ends at `highest`, or where the smoothed loss is `TOO_HIGH` times its lowest, or is no number. A tenth of the rate
    with the lowest loss is recommended as the peak of a schedule: the test is short, and a run stays at its peak
    longer. Errors: `ConfigError` for bounds that are none, and where not even the lowest rate trains.
    """
    if not 0.0 < lowest < highest < math.inf or steps < 2:
        raise ConfigError(
            f"A search for a learning rate goes up from one above 0, in 2 steps or more; got {lowest} to {highest} in "
            f"{steps}. Try 1e-6 to 1.0 in 100."
        )
    trial, tried, mean = copy.deepcopy(model), list[Tried](), 0.0
    try:
        for report in train_steps(
            trial, batches, optimizer(trial), Sweep("constant", highest, steps, least=lowest), **settings
        ):
            mean = MEMORY * mean + (1 - MEMORY) * report.loss
            smoothed = mean / (1 - MEMORY**report.number)  # as if the mean had not begun at 0
            tried.append(Tried(report.learning_rate, report.loss, smoothed))
            if not smoothed < TOO_HIGH * min(each.smoothed for each in tried):
                break
    except DivergedError:
        if not tried:
            raise
    best = min(tried, key=lambda each: each.smoothed)
    return Found(tried, best.rate, best.rate / 10)
