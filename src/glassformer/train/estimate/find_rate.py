"""The learning-rate range test: one short run in which the rate rises exponentially, on a copy of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from glassformer.base.errors import ConfigError, DivergedError
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loop import train_steps
from glassformer.train.optim.schedule import Schedule

MEMORY = 0.9
"""The weight of the past in the smoothed loss."""
TOO_HIGH = 2.0
"""The test ends when the smoothed loss is this many times the lowest so far."""


class Tried(NamedTuple):
    """One update of the test."""

    rate: float
    loss: float
    """Before the update, in nats per target."""
    smoothed: float


class Found(NamedTuple):
    """The result of the test."""

    tried: list[Tried]
    lowest: float
    """The rate at which the smoothed loss is lowest."""
    recommended: float
    """A tenth of `lowest`."""

    @property
    def rises(self) -> bool:
        """Whether the loss was seen to rise after `lowest`; otherwise the test ended there."""
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
    """The learning-rate range test (Smith 2017, section 3.3, with an exponential instead of a linear rise).

    `optimizer` makes an optimizer for a copy of the model, which is thrown away; `settings` are those of `train_steps`.
    The test ends at `highest`, or when the smoothed loss is `TOO_HIGH` times its lowest or NaN. It recommends a tenth
    of the rate with the lowest loss as the peak of a schedule, because the test is short and a run stays at its peak
    for longer. Errors: `ConfigError` for impossible bounds; `DivergedError` if not even the lowest rate trains.
    """
    if not 0.0 < lowest < highest < math.inf or steps < 2:
        raise ConfigError(
            f"A search for a learning rate needs 0 < lowest < highest and at least 2 steps; got {lowest} to {highest} "
            f"in {steps} steps. Try 1e-6 to 1.0 in 100 steps."
        )
    trial, tried, mean = copy.deepcopy(model), list[Tried](), 0.0
    try:
        for report in train_steps(
            trial, batches, optimizer(trial), Sweep("constant", highest, steps, least=lowest), **settings
        ):
            mean = MEMORY * mean + (1 - MEMORY) * report.loss
            smoothed = mean / (1 - MEMORY**report.number)  # corrects for the start of the mean at 0
            tried.append(Tried(report.learning_rate, report.loss, smoothed))
            if not smoothed < TOO_HIGH * min(each.smoothed for each in tried):
                break
    except DivergedError:
        if not tried:
            raise
    best = min(tried, key=lambda each: each.smoothed)
    return Found(tried, best.rate, best.rate / 10)
