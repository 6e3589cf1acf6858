"""Other programs on the same processors: how many threads to start with, and a note once a run's threads wait."""

from __future__ import annotations

import logging
import os
import time
from statistics import median

import torch

from glassformer.base.processors import PATIENCE, SPINS, waits_as_asked

LOG = logging.getLogger(__name__)
ENOUGH = 0.75
"""Of the time: threads that get so much of their processors are left as they are."""
LOOK, LOOKS = 0.04, 3
"""Seconds that each look at the start takes, and how many are taken where the first finds little: others may pause."""
STEPS, SECONDS = 8, 3.0
"""A look during training takes at least so many steps and so many seconds."""


def threads_to_use(threads: int, share: float) -> int:
    """How many of `threads` to use, each of which got this share of the time: as many as there are processors free."""
    return threads if share >= ENOUGH else max(1, int(threads * share))


def share_of_threads(threads: int) -> float:
    """The share of the time in which each of torch's `threads` runs: 1 if no other program is in the way.

    Measured by keeping them at work for 40 ms, up to three times.
    """
    x = torch.linspace(0, 1, threads << 17)
    y = x.sin()  # starts the threads
    best = 0.0
    for _ in range(LOOKS):
        began, used = time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - began) < LOOK:
            torch.sin(x, out=y)
        best = max(best, (time.process_time() - used) / passed / threads)
        if best >= ENOUGH:
            break
    return best


class Crowding:
    """Notices during training that other programs keep this thread from its processor, and says so, once.

    Each step's time is compared with what this thread computed of it. Waiting for other threads counts as computing
    only while it is short, so the share falls as well where another thread gets no processor.
    """

    def __init__(self, threads: int) -> None:
        """`threads`: torch's. With one there is nothing to wait for, and nothing is said."""
        self.threads = threads
        self.steps: list[tuple[float, float]] = []

    def after_step(self, seconds: float, computed: float) -> None:
        """Take in the seconds of a step and how many of them this thread computed; log the note if it is due."""
        if self.threads == 1:
            return
        self.steps.append((seconds, computed))
        if len(self.steps) < STEPS or sum(each for each, _ in self.steps) < SECONDS:
            return
        # of the steps and not of the seconds: one that waits long, for a compiler perhaps, tells nothing of the others
        share = median(done / passed for passed, done in self.steps)
        if share < ENOUGH:
            LOG.warning(self.note(share))
            self.threads = 1
        self.steps.clear()

    def note(self, share: float) -> str:
        """What is wrong, and what to do."""
        patience = "" if waits_as_asked(os.environ) else f", or {SPINS}={PATIENCE} in the environment"
        return (
            f"slow: other programs use the processors, so training runs {share:.0%} of the time and its {self.threads} "
            "threads wait for each other. One thread is faster then: training.threads 1 (to resume: --allow-change "
            f"training.threads --training.threads 1), in Python torch.set_num_threads(1){patience}."
        )
