"""The processors and threads of this machine: how many there are, and what the environment says."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

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
