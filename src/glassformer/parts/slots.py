"""Caches for continuous batching: rows join and leave the batch at any time while the others continue.

Each row has its own slot and starts there at column 0, so no row pays for another's padding. New rows are copied from
the cache that read their prompts; the last rows move into the slots of those that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

import torch

from glassformer.foundation.shapes import Bool, Int, Num, Tensor
from glassformer.parts.cache import Cache, Step
from glassformer.parts.columns import LayerCache

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
        """Copies rows of another cache behind its own; `columns` is the most that any of them will need.

        Slots are zeroed first: NaN or infinity left by an earlier row would spoil the result even at a weight of 0.
        """
        n = self.n_rows + len(rows)
        k, v = other.read()
        self._widen(k, v, n, max(columns, k.shape[2]), most_rows)
        assert self._held is not None
        for held, new in zip(self._held, (k, v), strict=True):
            held[self.n_rows : n] = 0
            held[self.n_rows : n, :, : new.shape[2]] = new[rows]
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


@runtime_checkable
class Takes(LayerCache, Protocol):
    """What `Slots` need of a room."""

    @property
    def at(self) -> Int[Tensor, "B T"] | None:
        """The columns of the next tokens."""
        ...

    @at.setter
    def at(self, columns: Int[Tensor, "B T"] | None) -> None: ...

    @property
    def width(self) -> int:
        """How many columns are read."""
        ...

    @width.setter
    def width(self, columns: int) -> None: ...

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """As `Room.take`."""
        ...


MakeRoom = Callable[..., Takes]
"""Makes an empty room, `complete` or not: `Room`, or `RoundedRoom`."""


class Crossing:
    """Keys and values of the encoder's memory in each layer, projected once per row, and each memory's length."""

    def __init__(self, n_layers: int, room: MakeRoom = Room) -> None:
        self.rooms = [room(complete=True) for _ in range(n_layers)]
        self.lengths: list[int] = []

    def take(self, others: Sequence[LayerCache], rows: Int[Tensor, " rows"], lengths: Sequence[int], most: int) -> None:
        """Copies rows of the caches that projected the memories; `lengths` counts their real places."""
        self.lengths += lengths
        for room, other in zip(self.rooms, others, strict=True):
            room.take(other, rows, 1, most)
        self._measure()

    def leave(self, order: Sequence[int]) -> None:
        """Keeps the given rows, in the order of `moved_up`."""
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))
        self._measure()

    def _measure(self) -> None:
        for room in self.rooms:
            room.width = max(self.lengths, default=0)

    def keep(self, device: torch.device) -> Bool[Tensor, "B S"]:
        """True at the real places of the memories."""
        places = torch.arange(max(self.lengths), device=device)
        return places < torch.tensor(self.lengths, device=device)[:, None]


class Slots(Cache):
    """A `Cache` whose rows join and leave. A step advances all rows together, each from its own length.

    `room` makes the rooms of all layers.
    """

    def __init__(self, n_layers: int, *, most_rows: int, room: MakeRoom = Room) -> None:
        super().__init__(n_layers)
        self.most_rows = most_rows
        self.rooms = [room(complete=False) for _ in range(n_layers)]
        self.crossing = Crossing(n_layers, room)
        self.layers = [*self.rooms]
        self.cross = [*self.crossing.rooms]
        self.lengths: list[int] = []

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the positions of new tokens, after those of their row; no padding, as another cache reads prompts."""
        assert keep is None, "padding takes no place here"
        assert len(tokens) == len(self.lengths), "all rows go on together"
        T, device = tokens.shape[1], tokens.device
        before = torch.tensor(self.lengths, device=device)[:, None]
        columns = torch.arange(max(self.lengths) + T, device=device)
        keys = torch.where(columns < before + T, columns, -1)
        return Step(before + torch.arange(T, device=device), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Records the tokens of a step and tells the layers their columns."""
        self.lengths = [length + step.positions.shape[-1] for length in self.lengths]
        self.length = max(self.lengths)
        self._measure()
        for room in self.rooms:
            room.at = step.positions

    def take(
        self, other: Cache, rows: Sequence[int], lengths: Sequence[int], columns: int, memories: Sequence[int] = ()
    ) -> None:
        """Adds rows of a growing cache with padding on the right, behind the rows already here.

        `lengths`: the number of real tokens in each. `columns`: the most tokens that any of them will have. `memories`:
        the number of real places in each one's memory, if there is an encoder.
        """
        which = torch.tensor(rows, device=other.layers[0].read()[0].device)
        for room, layer in zip(self.rooms, other.layers, strict=True):
            room.take(layer, which, columns, self.most_rows)
        if memories:
            self.crossing.take(other.cross, which, memories, self.most_rows)
        take_near(self, other, rows, lengths, columns)
        self.lengths += lengths
        self._measure()

    def leave(self, gone: Collection[int]) -> list[int]:
        """Removes rows; returns the new order of those that stay (`moved_up`)."""
        order = moved_up(len(self.lengths), gone)
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))
        self._measure()
        leave_near(self, gone)
        if self.crossing.lengths:
            self.crossing.leave(order)
        return order

    def _measure(self) -> None:
        """Updates the width of each room at once, because moving to larger buffers copies that many columns."""
        for room in self.rooms:
            room.width = max(self.lengths, default=0)


def take_near(slots: Cache, other: Cache, rows: Sequence[int], lengths: Sequence[int], columns: int) -> None:
    """Add the same rows of what convolutions read, if there are any. As `Slots.take`."""
    if slots.near is not None:
        assert isinstance(slots.near, Slots), "made so"
        assert other.near is not None, "one model made both"
        slots.near.take(other.near, rows, lengths, columns)


def leave_near(slots: Cache, gone: Collection[int]) -> None:
    """Remove the same rows of what convolutions read. As `Slots.leave`."""
    if slots.near is not None:
        assert isinstance(slots.near, Slots), "made so"
        slots.near.leave(gone)
