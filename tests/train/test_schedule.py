"""Learning rates: closed forms at every step, a straight rise, no jump where it ends, and no step up after it."""

import math

import pytest

from glassformer.base.errors import ConfigError
from glassformer.train import settings
from glassformer.train.schedule import SCHEDULES, Schedule

PEAK, LEAST, STEPS = 3e-3, 1e-4, 10_000
FALL = 8_000
"""From which step on the schedule wsd falls, unless its warm-up is longer."""


def share(step: int, top: int) -> float:
    """The way from step `top` to the step after the last, all of whose updates count."""
    return max(0, step - top) / (STEPS + 1 - top)


CLOSED = {
    "constant": lambda step, warmup: PEAK,
    "linear": lambda step, warmup: PEAK - (PEAK - LEAST) * share(step, max(1, warmup)),
    "cosine": lambda step, warmup: LEAST + (PEAK - LEAST) * math.cos(math.pi / 2 * share(step, max(1, warmup))) ** 2,
    "wsd": lambda step, warmup: PEAK - (PEAK - LEAST) * share(step, max(FALL, warmup)),
    "inverse_square_root": lambda step, warmup: max(LEAST, PEAK / math.sqrt(max(step, 1) / max(warmup, 1))),
}
"""The rate after the warm-up, by formulas that are not the code's own."""


def rates(name: str, warmup: int, steps: int = STEPS) -> list[float]:
    schedule = Schedule(name, PEAK, steps, warmup, LEAST)
    return [schedule(step) for step in range(steps + 1)]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 100, 9_999])
def test_closed_form(name, warmup):
    for step, rate in enumerate(rates(name, warmup)):
        wanted = PEAK * step / warmup if step < warmup else CLOSED[name](step, warmup)
        assert math.isclose(rate, wanted, rel_tol=1e-12, abs_tol=1e-18), step


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 5, 30])
@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_every_update_counts(name, steps, warmup):
    schedule = Schedule(name, PEAK, steps, warmup)
    assert all(schedule(step) > 0 for step in range(1, steps + 1))
    if warmup <= 1:
        assert schedule(1) == PEAK


def test_every_schedule_has_its_closed_form():
    assert settings.SCHEDULES is SCHEDULES
    assert sorted(SCHEDULES) == sorted(CLOSED)


def test_a_run_with_wsd_goes_on_with_another_horizon_from_before_its_cooldown():
    short, long = (Schedule("wsd", PEAK, steps, 10, LEAST, 50) for steps in (100, 500))
    assert [short(step) for step in range(51)] == [long(step) for step in range(51)]
    assert short(51) < long(51) == PEAK
    assert short(75) == pytest.approx(LEAST + (PEAK - LEAST) * 26 / 51, rel=1e-12)
    assert short(101) == LEAST


@pytest.mark.parametrize(("warmup", "most"), [(0, 10), (4, 6), (9, 1)])
def test_cooldown_beyond_what_the_warmup_leaves_is_refused(warmup, most):
    assert Schedule("wsd", 1.0, 10, warmup, cooldown=most)(11) == 0
    for cooldown in (0, most + 1, -1):
        with pytest.raises(ConfigError, match=rf"the {most} steps after the warm-up, of 10.*; got {cooldown} with"):
            Schedule("wsd", 1.0, 10, warmup, cooldown=cooldown)


def test_no_cooldown_fits_a_run_that_ends_in_its_warmup():
    with pytest.raises(ConfigError, match=r"at most the 0 .* warm-up.*got 1 with warmup=20\. Lower cooldown or warmup"):
        Schedule("wsd", 1.0, 10, 20, cooldown=1)


def test_cooldown_of_another_schedule_is_refused():
    with pytest.raises(ConfigError, match="belongs to name='wsd'; got cooldown=5 and name='cosine'"):
        Schedule("cosine", 1.0, 10, cooldown=5)


def test_unknown_name():
    with pytest.raises(ConfigError, match="Did you mean 'cosine'"):
        Schedule("cosin", 1.0, 10)
