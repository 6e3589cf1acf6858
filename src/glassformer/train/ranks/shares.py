"""An evaluation that several processes share out: each takes every n-th batch, and afterwards all know everything.

The batches are those that one process would make, so each row is computed beside the same neighbours and comes out with
the same bits; what is added up is added up in their order. The figures are those of one process, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from glassformer.train.ranks.distributed import Ranks


def own_batches(lengths: NDArray[np.int64], size: int, ranks: Ranks) -> list[list[int]]:
    """The batches of rows that this process takes, of all rows sorted by length."""
    order = lengths.argsort(kind="stable").tolist()
    return [order[first : first + size] for first in range(0, len(order), size)][ranks.number :: ranks.count]


def sum_of_batches(own: Sequence[float | int], ranks: Ranks) -> float:
    """The sum of a number of each batch, in the order of the batches; `own`: of this process's."""
    parts = ranks.gathered(own)
    return sum(parts[number % ranks.count][number // ranks.count] for number in range(sum(map(len, parts))))


def rows_of_all(rows: Sequence[int], values: Sequence[Sequence[int]], ranks: Ranks) -> list[list[int]]:
    """Whole numbers of each row, in the order of the rows, from those of this process's rows."""
    own = chain.from_iterable((row, len(each), *each) for row, each in zip(rows, values, strict=True))
    found: dict[int, list[int]] = {}
    for part in ranks.gathered(list(own)):
        numbers = [int(each) for each in part]
        at = 0
        while at < len(numbers):
            row, count = numbers[at : at + 2]
            found[row] = numbers[at + 2 : at + 2 + count]
            at += 2 + count
    return [found[row] for row in sorted(found)]
