"""Finding repetitions: how many ids before each place of a text equal those at its end."""

from __future__ import annotations

from collections.abc import Sequence


def ends_alike(ids: Sequence[int]) -> list[int]:
    """For each `back` from 0 to the length: how many ids before the place `back` from the end match the last ids.

    It is 0 at both ends: there is nothing before the first id, and the end is not compared with itself. It takes linear
    time: the Z algorithm (Gusfield 1997, section 1.4) on the reversed ids.
    """
    last = [*reversed(ids)]
    alike = [0] * (len(last) + 1)
    begin = end = 0  # of the match with the start that reaches furthest so far
    for at in range(1, len(last)):
        n = min(alike[at - begin], end - at) if at < end else 0
        if at + n >= end:
            while at + n < len(last) and last[n] == last[at + n]:
                n += 1
            begin, end = at, at + n
        alike[at] = n
    return alike
