"""How many processors this process may use. Imports no torch."""

from __future__ import annotations

import os


def free_processors() -> int:
    """The number of processors on which this process may run, possibly fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
