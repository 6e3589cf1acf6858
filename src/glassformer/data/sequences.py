"""Many id sequences of different lengths in flat arrays: a tenth of the memory of lists, with the lengths at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Sequences(Sequence[list[int]]):
    """Reads like a list of lists of ids. Row i is `flat[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        rows = list(rows)
        self.lengths: NDArray[np.int64] = np.fromiter(map(len, rows), np.int64, len(rows))
        self.offsets: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        self.flat: NDArray[np.int32] = np.fromiter(chain.from_iterable(rows), np.int32, int(self.offsets[-1]))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]  # a range knows negative indices and raises IndexError, which ends iteration
        return self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()
