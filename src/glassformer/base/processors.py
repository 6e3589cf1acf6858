"""The processors and threads of this machine: how many there are, what the environment says, who else computes."""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Mapping
from statistics import median

import torch

from glassformer.base.errors import ConfigError

# How many processors this process may use. Imports no torch.

BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables of the environment that let OpenMP bind each thread to a processor, the first one included."""


def free_processors() -> int:
    """The number of processors on which this process may run, possibly fewer than the machine has."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    of_this_thread = len(os.sched_getaffinity(0))
    if not any(os.environ.get(name) for name in BINDING):
        return of_this_thread
    of_openmp = getattr(ctypes.CDLL(None), "omp_get_num_procs", None)  # there once torch is loaded
    return of_this_thread if of_openmp is None else max(of_this_thread, of_openmp())


# What the environment tells OpenMP, with which torch runs its threads. Imports no torch.

THREADS, BIND = "OMP_NUM_THREADS", "OMP_PROC_BIND"
MOST_THREADS = 1024
"""The most threads that may be asked for."""
SPINS, WAITING = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
PATIENCE = "10000"
"""How often a thread that waits for others looks again before it sleeps: up to half a millisecond.

By itself GNU's OpenMP looks 300,000 times. That is no faster, and where other programs use the processors, it keeps
the very thread that is waited for from running.
"""
SWITCHES, PLACES = ("true", "false"), ("primary", "master", "close", "spread")


def threads_asked() -> int:
    """Return how many threads OMP_NUM_THREADS asks for; 0: it is not set, or empty.

    It may be a list with one number for each level of nesting; the first is ours. Errors: `ConfigError` for anything
    else, and for a number that is not from 1 to 1024.
    """
    text = os.environ.get(THREADS, "").strip()
    if not text:
        return 0
    numbers = [each.strip() for each in text.split(",")]
    if not all(map(is_count, numbers)):
        raise ConfigError(
            f"The environment variable {THREADS} must be a whole number from 1 to {MOST_THREADS}, or a list of them "
            f"such as 4,2, of which the first counts; got {text[:40]!r}. Set it to the number of threads that you "
            "want, or unset it."
        )
    return int(numbers[0])


def is_count(text: str) -> bool:
    """Whether a text is a number of threads that may be asked for."""
    return text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_THREADS


def check_environment() -> None:
    """Refuse what OpenMP does not understand, and unset an empty variable, of which it would complain.

    It reads its variables when torch is imported, so call this before. Errors: `ConfigError`.
    """
    for name in (THREADS, BIND):
        if not os.environ.get(name, "unset").strip():
            del os.environ[name]
    threads_asked()
    bound = os.environ.get(BIND, "false")
    wanted = [each.strip().lower() for each in bound.split(",")]
    if not (wanted[0] in SWITCHES and len(wanted) == 1) and not all(each in PLACES for each in wanted):
        raise ConfigError(
            f"The environment variable {BIND} must be {', '.join(SWITCHES)}, or a list of {', '.join(PLACES)}; got "
            f"{bound[:40]!r}. Set it to one of these, or unset it."
        )


def waits_as_asked(environment: Mapping[str, str]) -> bool:
    """Whether the environment says how long threads wait for each other before they sleep."""
    return any(environment.get(name, "").strip() for name in (SPINS, WAITING))


def shorten_waits() -> None:
    """Let threads sleep that wait long for each other, unless the environment says how they wait. It changes no result.

    GNU's OpenMP, which torch brings along on Linux, reads it when torch is imported, so call this before.
    """
    if not waits_as_asked(os.environ):
        os.environ[SPINS] = PATIENCE


# Other programs on the same processors: how many threads to start with, and a note once a run's threads wait.

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
