"""Buffers whose rows join and leave, each with its own slot."""

from __future__ import annotations

from collections.abc import Collection

import torch

from glassformer.base.shapes import Int, Num, Tensor
from glassformer.nn.columns import LayerCache

STEP_OF_COLUMNS = 64
"""Buffers grow by multiples of this many columns, so that they seldom have to be reallocated."""


def moved_up(n_rows: int, gone: Collection[int]) -> list[int]:
    """The old places of the rows that stay, in their new order: the last rows fill the places of those gone."""
    stay = [row for row in range(n_rows) if row not in gone]
    holes = sorted(row for row in gone if row < len(stay))
    order = list(range(len(stay)))
    for hole, row in zip(holes, [row for row in stay if row >= len(stay)], strict=True):
        order[hole] = row
    return order


class Room:
    """Buffers for the keys and values of one layer, [rows, G, columns, K] each; each row fills its first columns.

    `at` gives the columns of the next tokens and `width` how many columns are read; the owner of the room sets both. A
    `complete` room is filled once and then only read: it holds the keys of an encoder's memory.
    """

    def __init__(self, *, complete: bool = False) -> None:
        self.complete = complete
        self.n_rows = self.width = 0
        self.at: Int[Tensor, "B T"] | None = None
        self._held: tuple[Tensor, Tensor] | None = None

    @property
    def buffers(self) -> tuple[Tensor, Tensor] | None:
        """As `Columns.buffers`."""
        return self._held

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype, *, values: bool = True) -> None:
        """As `Growing.claim`; a row has room for all its tokens from the beginning."""

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"]:
        """As `Growing.newest`. Errors: `IndexError` for a column that the buffers do not have."""
        assert self.at is not None, "a step says where its tokens stand"
        assert self._held is not None, "rows are taken before they go on"
        at = self.at.reshape(B, T).contiguous()
        if int(at.max()) >= self._held[0].shape[2]:
            raise IndexError(
                f"The cache has no column {int(at.max())}: more tokens were written than its rows have room for."
            )
        return at

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Writes new keys and values at each row's columns `at`; returns as `read`."""
        assert self._held is not None, "rows are taken before they go on"
        assert self.at is not None, "a step says where its tokens stand"
        rows = torch.arange(len(k), device=k.device)[:, None]
        for held, new in zip(self._held, (k, v), strict=True):
            held[rows, :, self.at] = new.transpose(1, 2)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of all rows, up to the columns of the longest row."""
        assert self._held is not None, "no row was taken yet"
        k, v = self._held
        return k[: self.n_rows, :, : self.width], v[: self.n_rows, :, : self.width]

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """Copies rows of another cache behind its own; `columns` is the most that any of them will need."""
        k, v = other.read()
        self.add(k[rows], v[rows], columns, most_rows)

    def add(self, k: Num[Tensor, "N G S K"], v: Num[Tensor, "N G S _"], columns: int, most_rows: int) -> None:
        """Copies rows of keys and values behind its own; `columns` is the most that any of them will need.

        Slots are zeroed first: NaN or infinity left by an earlier row would spoil the result even at a weight of 0.
        """
        n = self.n_rows + len(k)
        self._widen(k, v, n, max(columns, k.shape[2]), most_rows)
        assert self._held is not None
        for held, new in zip(self._held, (k, v), strict=True):
            held[self.n_rows : n] = 0
            held[self.n_rows : n, :, : new.shape[2]] = new
        self.n_rows = n

    def _widen(self, k: Tensor, v: Tensor, n: int, columns: int, most_rows: int) -> None:
        """Moves to larger buffers if needed: for the current rows and half as many more, up to `most_rows`.

        There is one spare column, and at least one spare row below `most_rows`: a buffer of one row, or one that is
        read whole, would need a compilation of its own where steps are compiled.
        """
        if self._held is not None and self._held[0].shape[0] >= n and self._held[0].shape[2] > columns:
            return
        columns = -(-max(columns, self.width) // STEP_OF_COLUMNS) * STEP_OF_COLUMNS + 1
        rows = min(n + max(n // 2, 1), max(most_rows, n))
        old, self._held = (
            self._held,
            (
                k.new_zeros(rows, k.shape[1], columns, k.shape[3]),
                v.new_zeros(rows, v.shape[1], columns, v.shape[3]),
            ),
        )
        if old is not None and self.n_rows:
            for held, before in zip(self._held, old, strict=True):
                held[: self.n_rows, :, : self.width] = before[: self.n_rows, :, : self.width]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows, in an order from `moved_up`; copies only rows whose place changes."""
        order = rows.tolist()
        assert self._held is not None
        for place, row in enumerate(order):
            if place != row:
                for held in self._held:
                    held[place] = held[row]
        self.n_rows = len(order)
