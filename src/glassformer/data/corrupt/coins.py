"""The random numbers of one row of one step: a function of (seed, step, row), whichever process makes the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Coins:
    """Uniform numbers and choices from raw Philox output, which numpy keeps the same in all versions."""

    def __init__(self, seed: int, step: int, row: int) -> None:
        # The key separates these numbers from those that chose the windows, which depend on (seed, step).
        self._raw = np.random.Philox(np.random.SeedSequence((seed, step, row), spawn_key=(1,)))

    def uniform(self, n: int) -> NDArray[np.floating]:
        """[n] numbers, each at least 0 and below 1."""
        return (self._raw.random_raw(n) >> np.uint64(11)) * 2.0**-53

    def below(self, limit: int, n: int) -> NDArray[np.int64]:
        """[n] whole numbers, each at least 0 and below `limit`."""
        return (self.uniform(n) * limit).astype(np.int64)

    def some_of(self, n: int, count: int) -> NDArray[np.int64]:
        """`count` different numbers below n, in ascending order; all such sets are equally likely."""
        return np.sort(np.argsort(self._raw.random_raw(n), kind="stable")[:count])
