"""Share an evaluation among several processes: each takes every n-th batch, and afterwards all have all results.

The batches are those that one process would make, so each row is computed beside the same neighbours and gives the same
bits, and sums are added in the same order. The metrics are those of one process, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from glassformer.train.ranks.distributed import Ranks


def own_batches(lengths: NDArray[np.int64], size: int, ranks: Ranks) -> list[list[int]]:
    """The batches that this process takes, of all rows sorted by length."""
    order = lengths.argsort(kind="stable").tolist()
    return [order[first : first + size] for first in range(0, len(order), size)][ranks.number :: ranks.count]


def sum_of_batches(own: Sequence[float | int], ranks: Ranks) -> float:
    """The sum of one number per batch, in the order of the batches; `own`: those of this process's batches."""
    parts = ranks.gathered(own)
    return sum(parts[number % ranks.count][number // ranks.count] for number in range(sum(map(len, parts))))


def rows_of_all(rows: Sequence[int], values: Sequence[Sequence[int]], ranks: Ranks) -> list[list[int]]:
    """Whole numbers for each row, in the order of the rows, gathered from `values` of each process's `rows`."""
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
