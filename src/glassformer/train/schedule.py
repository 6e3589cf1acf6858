"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from glassformer.foundation.registry import lookup
from glassformer.foundation.typed import check_types


@dataclass(frozen=True)
class Schedule:
    """schedule(step) for steps counted from 1: a linear warm-up to `peak`, then the named law, down to `least`."""

    name: str
    peak: float
    steps: int
    warmup: int = 0
    least: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        lookup(SCHEDULES, self.name, "schedule")

    def __call__(self, step: int) -> float:
        """The learning rate of the update number `step`."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        return SCHEDULES[self.name](self, step)

    def done(self, step: int) -> float:
        """The share of the way from the end of the warm-up to the last step, 0 to 1."""
        return min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))


def constant(schedule: Schedule, step: int) -> float:
    """The peak, to the end."""
    del step
    return schedule.peak


def linear(schedule: Schedule, step: int) -> float:
    """A straight line from the peak to `least` at the last step."""
    return schedule.peak + (schedule.least - schedule.peak) * schedule.done(step)


def cosine(schedule: Schedule, step: int) -> float:
    """Half a cosine from the peak to `least` (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return schedule.least + (schedule.peak - schedule.least) * (1 + math.cos(math.pi * schedule.done(step))) / 2


def inverse_square_root(schedule: Schedule, step: int) -> float:
    """peak * sqrt(warmup / step) (Vaswani et al. 2017, equation 3, written by its peak)."""
    return max(schedule.least, schedule.peak * math.sqrt(max(1, schedule.warmup) / max(1, step)))


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse_square_root": inverse_square_root,
}
