"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from glassformer.base.contradictions import SCHEDULE, refuse
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.settings import check


@dataclass(frozen=True)
class Schedule:
    """schedule(step) for steps counted from 1: a linear warm-up to `peak`, then the named decay towards `least`.

    cosine, linear and wsd would be at `least` one step after the last, so that every update counts where `least` is 0.

    >>> from glassformer import Schedule
    >>> rate = Schedule("linear", peak=1.0, steps=10, warmup=2)
    >>> [round(rate(step), 2) for step in (1, 2, 6, 10)]
    [0.5, 1.0, 0.56, 0.11]
    """

    name: str
    peak: float
    steps: int
    warmup: int = 0
    least: float = 0.0
    cooldown: int | None = None
    """Steps of the final decay of wsd; None: a fifth of all steps, or what the warm-up leaves."""

    def __post_init__(self) -> None:
        check(self)
        lookup(SCHEDULES, self.name, "schedule")
        refuse(self, SCHEDULE)
        if not (0 <= self.peak < math.inf and self.steps >= 1 and self.warmup >= 0 and 0 <= self.least <= self.peak):
            raise ConfigError(
                "A schedule needs a finite peak of at least 0, at least one step, a warm-up of 0 steps or more, and "
                f"least from 0 to the peak; got {self}. Correct it."
            )
        after = max(0, self.steps - self.warmup)
        if self.cooldown is not None and not 0 < self.cooldown <= after:
            raise ConfigError(
                f"cooldown must be at least 1 and at most the {after} steps after the warm-up, of {self.steps} in all; "
                f"got {self.cooldown} with warmup={self.warmup}. Lower cooldown or warmup."
            )

    def __call__(self, step: int) -> float:
        """The learning rate of the update number `step`."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        return SCHEDULES[self.name](self, step)

    def done(self, step: int) -> float:
        """The fraction of the way from the first step at the peak to the step after the last, 0 to 1."""
        peak = max(1, self.warmup)
        return min(1.0, max(0, step - peak) / max(1, self.steps + 1 - peak))


def constant(schedule: Schedule, step: int) -> float:
    """The peak, to the end."""
    del step
    return schedule.peak


def linear(schedule: Schedule, step: int) -> float:
    """A straight line from the peak to `least`."""
    return schedule.peak + (schedule.least - schedule.peak) * schedule.done(step)


def cosine(schedule: Schedule, step: int) -> float:
    """Half a cosine from the peak to `least` (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    return schedule.least + (schedule.peak - schedule.least) * (1 + math.cos(math.pi * schedule.done(step))) / 2


def wsd(schedule: Schedule, step: int) -> float:
    """Warm-up, stable, decay: the peak, then a straight line to `least` over `cooldown` (Hu et al. 2024, section 4).

    Nothing before the cooldown depends on the number of steps, so a run can continue from there with another number.
    """
    down = schedule.cooldown or min(schedule.steps // 5, schedule.steps - schedule.warmup)
    left = min(1.0, max(0, schedule.steps + 1 - step) / (down + 1)) if down > 0 else 1.0
    return schedule.least + (schedule.peak - schedule.least) * left


def inverse_square_root(schedule: Schedule, step: int) -> float:
    """peak * sqrt(warmup / step) (Vaswani et al. 2017, equation 3, in terms of its peak)."""
    return max(schedule.least, schedule.peak * math.sqrt(max(1, schedule.warmup) / max(1, step)))


SCHEDULES: dict[str, Callable[[Schedule, int], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "inverse_square_root": inverse_square_root,
    "wsd": wsd,
}
