"""How many processors this process may use. Imports no torch."""

from __future__ import annotations

import ctypes
import os

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
