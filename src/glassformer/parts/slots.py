"""Caches whose rows come and go while others go on: what decoding needs where texts begin and end at any time.

Each row has a slot of its own and stands in it from column 0 on, so no row pays for another's padding. New rows are
taken over from the cache that read their prompts; the last rows move into the slots of those that leave.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch

from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.parts.cache import Cache, LayerCache, Step
from glassformer.parts.state import State, StateCache

STEP_OF_COLUMNS = 64
"""Room is made for a multiple of so many columns, so that it seldom has to be made anew."""


def moved_up(n_rows: int, gone: Collection[int]) -> list[int]:
    """The former places of the rows that stay, in their new order: the last ones fill the places of those gone."""
    stay = [row for row in range(n_rows) if row not in gone]
    holes = sorted(row for row in gone if row < len(stay))
    order = list(range(len(stay)))
    for hole, row in zip(holes, [row for row in stay if row >= len(stay)], strict=True):
        order[hole] = row
    return order


class Room:
    """Keys and values of one layer, [rows, G, columns, K] each; a row's own are in its first columns.

    `at` says where the next tokens stand, `width` how many columns are read; whoever owns the room sets both. A
    `complete` room is filled once and then only read: the keys of an encoder's memory.
    """

    def __init__(self, *, complete: bool = False) -> None:
        self.complete = complete
        self.n_rows = self.width = 0
        self.at: Int[Tensor, "B T"] | None = None
        self._held: tuple[Tensor, Tensor] | None = None

    def append(
        self, k: Float[Tensor, "B G T K"], v: Float[Tensor, "B G T K"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Writes the keys and values where each row stands; all columns up to the longest row's."""
        assert self._held is not None, "rows are taken before they go on"
        assert self.at is not None, "a step says where its tokens stand"
        rows = torch.arange(len(k), device=k.device)[:, None]
        for held, new in zip(self._held, (k, v), strict=True):
            held[rows, :, self.at] = new.transpose(1, 2)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """The columns of all rows up to the longest row's."""
        assert self._held is not None, "no row was taken yet"
        k, v = self._held
        return k[: self.n_rows, :, : self.width], v[: self.n_rows, :, : self.width]

    def take(self, other: LayerCache, rows: Int[Tensor, " rows"], columns: int, most_rows: int) -> None:
        """Rows of another cache behind one's own; `columns` is the most that any row will need.

        What a slot held before is wiped: numbers that are none, of a row long gone, would reach others even through
        a weight of 0.
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
        """Larger room where it is needed, as large as the rows of now need it, and half as many more rows.

        At least one more, and one more column than any row needs: where steps are compiled, a room of one row and one
        that is read whole would be kinds of their own.
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
        """Keeps the given rows, in the order of `moved_up`: only those that stand elsewhere are copied."""
        order = rows.tolist()
        assert self._held is not None
        for place, row in enumerate(order):
            if place != row:
                for held in self._held:
                    held[place] = held[row]
        self.n_rows = len(order)


class Crossing:
    """The keys of the encoder's memory in each layer, projected once for each row, and how long each memory is."""

    def __init__(self, n_layers: int) -> None:
        self.rooms = [Room(complete=True) for _ in range(n_layers)]
        self.lengths: list[int] = []

    def take(self, others: Sequence[LayerCache], rows: Int[Tensor, " rows"], lengths: Sequence[int], most: int) -> None:
        """Rows of the cache that read the memories first; of each, so many places are real."""
        self.lengths += lengths
        for room, other in zip(self.rooms, others, strict=True):
            room.take(other, rows, 1, most)
        self._measure()

    def leave(self, order: Sequence[int]) -> None:
        """Keeps these rows."""
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))
        self._measure()

    def _measure(self) -> None:
        for room in self.rooms:
            room.width = max(self.lengths, default=0)

    def keep(self, device: torch.device) -> Bool[Tensor, "B S"]:
        """Where the memories are real."""
        places = torch.arange(max(self.lengths), device=device)
        return places < torch.tensor(self.lengths, device=device)[:, None]


class Slots(Cache):
    """A `Cache` whose rows come and go. All rows go on together, each from where it stands."""

    def __init__(self, n_layers: int, *, most_rows: int) -> None:
        super().__init__(n_layers)
        self.most_rows = most_rows
        self.rooms = [Room() for _ in range(n_layers)]
        self.crossing = Crossing(n_layers)
        self.layers = [*self.rooms]
        self.cross = [*self.crossing.rooms]
        self.lengths: list[int] = []

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Where new tokens stand: behind those of their own row. Padding cannot be: rows are read before they come."""
        assert keep is None, "padding takes no place here"
        assert len(tokens) == len(self.lengths), "all rows go on together"
        T, device = tokens.shape[1], tokens.device
        before = torch.tensor(self.lengths, device=device)[:, None]
        columns = torch.arange(max(self.lengths) + T, device=device)
        keys = torch.where(columns < before + T, columns, -1)
        return Step(before + torch.arange(T, device=device), keys, in_order=False)

    def advance(self, step: Step) -> None:
        """Tells the layers where the tokens of a step stand."""
        self.lengths = [length + step.positions.shape[-1] for length in self.lengths]
        self.length = max(self.lengths)
        self._measure()
        for room in self.rooms:
            room.at = step.positions

    def take(
        self, other: Cache, rows: Sequence[int], lengths: Sequence[int], columns: int, memories: Sequence[int] = ()
    ) -> None:
        """Rows of a growing cache whose padding is on the right come in behind those that are there.

        `lengths`: how many tokens of each are real. `columns`: the most that one of them will have. `memories`: how
        many places of the memory of each are real, where there is an encoder.
        """
        which = torch.tensor(rows, device=other.layers[0].read()[0].device)
        for room, layer in zip(self.rooms, other.layers, strict=True):
            room.take(layer, which, columns, self.most_rows)
        if memories:
            self.crossing.take(other.cross, which, memories, self.most_rows)
        self.lengths += lengths
        self._measure()

    def leave(self, gone: Collection[int]) -> list[int]:
        """Takes rows out; the answer is the order of those that stay, by `moved_up`."""
        order = moved_up(len(self.lengths), gone)
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))
        self._measure()
        if self.crossing.lengths:
            self.crossing.leave(order)
        return order

    def _measure(self) -> None:
        """Whatever is moved into larger room is moved by this width, so it holds as soon as rows came or went."""
        for room in self.rooms:
            room.width = max(self.lengths, default=0)


class StateSlots(StateCache):
    """The same of linear attention: a row's state has one size, so there is no room to make."""

    def __init__(self, n_layers: int, features: int, *, most_rows: int) -> None:
        super().__init__(n_layers, features)
        self.most_rows = most_rows
        self.crossing = Crossing(n_layers)
        self.cross = [*self.crossing.rooms]

    def take(
        self, other: Cache, rows: Sequence[int], lengths: Sequence[int], columns: int, memories: Sequence[int] = ()
    ) -> None:
        """As `Slots.take`; states need no columns."""
        which = torch.tensor(rows, device=other.layers[0].read()[0].device)
        for state, layer in zip(self.states, other.layers, strict=True):
            state.join(cast(State, layer), which)
        if memories:
            self.crossing.take(other.cross, which, memories, self.most_rows)
        counts = torch.tensor(lengths, device=which.device)[:, None]
        self._counts = counts if self._counts is None else torch.cat([self._counts, counts])

    def leave(self, gone: Collection[int]) -> list[int]:
        """As `Slots.leave`."""
        assert self._counts is not None, "nobody can leave before somebody came"
        order = moved_up(len(self._counts), gone)
        rows = torch.tensor(order, dtype=torch.long, device=self._counts.device)
        for state in self.states:
            state.select(rows)
        self._counts = self._counts[rows]
        if self.crossing.lengths:
            self.crossing.leave(order)
        return order
