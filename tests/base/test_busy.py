"""Other programs on the same processors: what is decided from figures that are given here, never from a clock."""

import logging

import pytest
import torch

from glassformer.base import runtime as busy
from glassformer.base.processors import SPINS, WAITING
from glassformer.base.runtime import ENOUGH, LOOK, LOOKS, STEPS, Crowding, share_of_threads, threads_to_use


@pytest.mark.parametrize(
    ("threads", "share", "used"),
    [(2, 1.0, 2), (2, ENOUGH, 2), (2, 0.74, 1), (2, 0.01, 1), (8, 0.9, 8), (8, 0.5, 4), (8, 0.1, 1), (3, 0.67, 2)],
)
def test_threads_for_a_share(threads, share, used):
    assert threads_to_use(threads, share) == used


class Clock:
    """A clock that goes on by a look's length at each reading, and a processor's that goes on by the share given."""

    def __init__(self, shares):
        self.shares, self.now, self.used, self.looks = shares, 0.0, 0.0, 0

    def perf_counter(self):
        self.now += LOOK
        return self.now

    def process_time(self):
        self.looks += 1
        before = (self.looks - 1) // 2  # asked before and after each look, which takes one length of it
        self.used += 0 if self.looks % 2 else self.shares[before] * LOOK * 2
        return self.used


@pytest.mark.parametrize(
    ("shares", "found", "looks"), [((1.0,), 1.0, 1), ((0.2, 0.9), 0.9, 2), ((0.2, 0.5, 0.3), 0.5, LOOKS)]
)
def test_the_share_is_the_best_of_a_few_looks(monkeypatch, shares, found, looks):
    """One look may fall on a moment in which something else has just begun."""
    clock = Clock(shares)
    monkeypatch.setattr(busy, "time", clock)
    assert share_of_threads(2) == pytest.approx(found)
    assert clock.looks == 2 * looks


def notes_of(caplog, threads, steps):
    """The warnings of a training whose steps took (seconds, of which it computed)."""
    crowding = Crowding(threads)
    with caplog.at_level(logging.WARNING, "glassformer"):
        for seconds, computed in steps:
            crowding.after_step(seconds, computed)
    return [each.getMessage() for each in caplog.records]


def test_training_says_once_that_its_threads_wait(monkeypatch, caplog):
    monkeypatch.setenv(SPINS, "10000")
    (note,) = notes_of(caplog, 2, [(1.0, 0.25)] * (3 * STEPS))
    assert note.startswith(
        "slow: other programs use the processors, so training runs 25% of the time and its 2 threads"
    )
    assert "training.threads 1 (to resume: --allow-change training.threads --training.threads 1)" in note
    assert note.endswith("in Python torch.set_num_threads(1).")


def test_whoever_imports_torch_alone_hears_of_the_waits_too(monkeypatch, caplog):
    for name in (SPINS, WAITING):
        monkeypatch.delenv(name, raising=False)
    (note,) = notes_of(caplog, 2, [(1.0, 0.25)] * STEPS)
    assert note.endswith("torch.set_num_threads(1), or GOMP_SPINCOUNT=10000 in the environment.")


@pytest.mark.parametrize(("threads", "steps"), [
    (1, [(1.0, 0.1)] * STEPS),  # one thread waits for none
    (2, [(1.0, 0.9)] * STEPS),
    (2, [(1.0, 0.1)] * (STEPS - 1)),  # too few to tell
    (2, [(0.01, 0.001)] * STEPS),  # too short to tell
    (2, [(60.0, 0.1), (60.0, 0.1), *[(1.0, 0.9)] * (STEPS - 2)]),  # two steps waited, for a compiler perhaps
])  # fmt: skip
def test_training_says_nothing(caplog, threads, steps):
    assert notes_of(caplog, threads, steps) == []


def test_a_later_crowd_is_noticed(caplog):
    assert len(notes_of(caplog, 2, [(1.0, 0.9)] * STEPS + [(1.0, 0.2)] * STEPS)) == 1


def test_looking_leaves_the_generator_alone():
    before = torch.random.get_rng_state()
    share_of_threads(torch.get_num_threads())
    assert torch.equal(torch.random.get_rng_state(), before)
