"""What stands in a text already: how far the ids before each place are those at its end."""

from __future__ import annotations

from collections.abc import Sequence


def ends_alike(ids: Sequence[int]) -> list[int]:
    """At `back`, from 0 to the length: how many ids before the place so far from the end are the last ids.

    0 at either end: before the first stands nothing, and the end is not compared with itself. In linear time: the Z
    algorithm (Gusfield 1997, section 1.4) on the ids from the last to the first.
    """
    last = [*reversed(ids)]
    alike = [0] * (len(last) + 1)
    begin = end = 0  # of the stretch known to be as the beginning that reaches furthest
    for at in range(1, len(last)):
        n = min(alike[at - begin], end - at) if at < end else 0
        if at + n >= end:
            while at + n < len(last) and last[n] == last[at + n]:
                n += 1
            begin, end = at, at + n
        alike[at] = n
    return alike
