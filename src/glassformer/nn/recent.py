"""What short convolutions read of rows that join and leave: of each row its last tokens, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.nn.cache import Cache, Step, steps_back
from glassformer.nn.room import Room


class Recent(Cache):
    """A cache in which token p of a row lies in column p modulo `taps`, so that no row takes more room as it grows."""

    def __init__(self, n_layers: int, taps: int, *, most_rows: int) -> None:
        super().__init__(0)
        self.taps, self.most_rows = taps, most_rows
        self.rooms = [Room() for _ in range(n_layers)]
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
