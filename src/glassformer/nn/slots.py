"""Caches for continuous batching: rows join and leave the batch at any time while the others continue.

Each row has its own slot and starts there at column 0, so no row pays for another's padding. New rows are copied from
the cache that read their prompts; the last rows move into the slots of those that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

import torch

from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.cache import Cache
from glassformer.nn.compact_cache import RoundedSlotted, Slotted, State, StateCache, moved_up
from glassformer.nn.step import Step, steps_back


class Recent(Cache):
    """A cache in which token p of a row lies in column p modulo `taps`, so that no row takes more room as it grows."""

    def __init__(self, n_layers: int, taps: int, *, most_rows: int) -> None:
        super().__init__(0)
        self.taps, self.most_rows = taps, most_rows
        self.rooms = [Slotted() for _ in range(n_layers)]
        self.layers = [*self.rooms]
        self.lengths: list[int] = []

    def step(self, tokens: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> Step:
        """Returns the position of each row's new token; there may be only one, as another would take its column."""
        assert keep is None, "padding takes no place here"
        assert tokens.shape == (len(self.lengths), 1), "all rows go on together, by one token"
        positions = torch.tensor(self.lengths, device=tokens.device)[:, None]
        return Step(positions, positions, in_order=False)

    def advance(self, step: Step) -> None:
        """Records the new tokens and tells the layers their columns."""
        self.lengths = [length + 1 for length in self.lengths]
        for room in self.rooms:
            room.at = step.positions % self.taps

    def earlier(self, step: Step, count: int) -> Int[Tensor, "N *batch T"]:
        """As `Cache.earlier`."""
        places = step.positions - steps_back(count, step.positions)
        return torch.where(places >= 0, places % self.taps, -1)

    def take(self, other: Cache, rows: Int[Tensor, " rows"], lengths: Sequence[int]) -> None:
        """Adds the last tokens of rows of a growing cache with padding on the right, behind the rows already here."""
        last = torch.tensor(lengths, device=rows.device)[:, None] - 1
        places = last - (last - torch.arange(self.taps, device=rows.device)) % self.taps  # the last in each column
        for room, layer in zip(self.rooms, other.layers, strict=True):
            k, v = (each[rows[:, None], :, places.clamp(min=0)].transpose(1, 2) for each in layer.read())
            room.add(k, v, self.taps, self.most_rows)
            room.width = self.taps
        self.lengths += lengths

    def leave(self, order: Sequence[int]) -> None:
        """Keeps the given rows, in the order of `moved_up`."""
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))


MakeRoom = Callable[..., Slotted | RoundedSlotted]
"""Makes an empty room, `complete` or not."""


class Crossing:
    """Keys and values of the encoder's memory in each layer, projected once per row, and each memory's length."""

    def __init__(self, n_layers: int, room: MakeRoom = Slotted) -> None:
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

    `room` makes the rooms of all layers. `recent` keeps what short convolutions read.
    """

    def __init__(
        self, n_layers: int, *, most_rows: int, room: MakeRoom = Slotted, recent: Recent | None = None
    ) -> None:
        super().__init__(n_layers)
        self.most_rows = most_rows
        self.recent = self.convolved = recent
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
        if self.recent is not None and other.convolved is not None:
            self.recent.take(other.convolved, which, lengths)
        self.lengths += lengths
        self._measure()

    def leave(self, gone: Collection[int]) -> list[int]:
        """Removes rows; returns the new order of those that stay (`moved_up`)."""
        order = moved_up(len(self.lengths), gone)
        self.lengths = [self.lengths[row] for row in order]
        for room in self.rooms:
            room.select(torch.tensor(order, dtype=torch.long))
        self._measure()
        if self.recent is not None:
            self.recent.leave(order)
        if self.crossing.lengths:
            self.crossing.leave(order)
        return order

    def _measure(self) -> None:
        """Updates the width of each room at once, because moving to larger buffers copies that many columns."""
        for room in self.rooms:
            room.width = max(self.lengths, default=0)


class StateSlots(StateCache):
    """The counterpart of `Slots` for linear attention: a row's state has a constant size and needs no columns."""

    def __init__(self, n_layers: int, features: int, *, most_rows: int, recent: Recent | None = None) -> None:
        super().__init__(n_layers, features)
        self.most_rows = most_rows
        self.recent = self.convolved = recent
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
        if self.recent is not None and other.convolved is not None:
            self.recent.take(other.convolved, which, lengths)
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
        if self.recent is not None:
            self.recent.leave(order)
        if self.crossing.lengths:
            self.crossing.leave(order)
        return order
