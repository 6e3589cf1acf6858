"""Continuous batching of linear attention, whose state is the same size however many tokens a row has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch

from glassformer.nn.cache import Cache
from glassformer.nn.recent import Recent
from glassformer.nn.room import moved_up
from glassformer.nn.slots import Crossing
from glassformer.nn.state import State, StateCache


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
