"""Batches that start small or short and grow: each sample is still in one batch per epoch, and none is cut or dropped.

A pair that is cut would say something else, so under a length warm-up the long ones wait: a step takes the first batch
in its epoch's order that is short enough for it. If none is left in the epoch, it takes the shortest that is: a later
epoch starts when all samples were seen, never before. Under a batch warm-up the full batch is taken in equal parts over
consecutive steps. Both depend only on (seed, step), as the full batches depend only on (seed, epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from glassformer.data.growth import Growth
from glassformer.data.sampler import BatchSampler, Indices, Lengths


class Turn(NamedTuple):
    """What a step takes: a part of a batch of an epoch."""

    epoch: int
    batch: int
    """The batch's place in the epoch's order."""
    part: int
    parts: int
    too_long: bool
    """Whether the batch is longer than the step allows, because its epoch had no shorter one left."""


class WarmingSampler(BatchSampler):
    """A `BatchSampler` whose first steps are limited by a `Growth`; without a warm-up it is that sampler."""

    def __init__(
        self,
        lengths_source: Lengths,
        lengths_target: Lengths,
        batch_tokens: int,
        seed: int = 0,
        pool: int | None = None,
        place: Callable[[int, str], str] | None = None,
        growth: Growth | None = None,
    ) -> None:
        super().__init__(lengths_source, lengths_target, batch_tokens, seed, pool, place)
        self.growth = growth or Growth()
        self.longest = int(max(self.source.max(), self.target.max()))
        self.turns: list[Turn] = []
        """The turn of each step up to the end of the epoch in which the warm-up ends."""
        epoch = 0
        while len(self.turns) < self.growth.steps:
            self.turns += self._turns(epoch, len(self.turns) + 1)
            epoch += 1
        self._steps_before = self._first_step(epoch)

    def at(self, step: int) -> tuple[int, Indices]:
        """The epoch and the sample indices of this step of training (counted from 0)."""
        if step >= len(self.turns):
            return super().at(step - len(self.turns) + self._steps_before)
        turn = self.turns[step]
        return turn.epoch, np.array_split(self._batches(turn.epoch)[turn.batch], turn.parts)[turn.part]

    def epochs(self, steps: int) -> float:
        """How often this many steps see each sample."""
        whole = sum(1 / turn.parts for turn in self.turns[:steps]) + max(0, steps - len(self.turns))
        return whole / len(self._batches(0))

    def notes(self) -> list[str]:
        """Lines for the user: what the warm-ups limit, for how long, and where that was impossible."""
        growth, lines = self.growth, list[str]()
        if growth.batch_steps:
            lines.append(
                f"batch warm-up: over {growth.batch_steps:,} steps from 1/{growth.parts(1)} of a batch to all of it"
            )
        if growth.length_steps:
            late = sum(turn.too_long for turn in self.turns[: growth.length_steps])
            why = ", as their epochs had no shorter ones left" if late else ""
            lines.append(
                f"length warm-up: over {growth.length_steps:,} steps from {growth.length(1, self.longest)} to "
                f"{self.longest} tokens; {late:,} of these steps hold longer samples than that{why}"
            )
        return lines

    def _turns(self, epoch: int, step: int) -> Iterator[Turn]:
        """The turns of one epoch, whose first step is `step` (counted from 1)."""
        lengths = [int(max(self.source[rows].max(), self.target[rows].max())) for rows in self._batches(epoch)]
        waiting = sorted(range(len(lengths)), key=lambda place: (lengths[place], place), reverse=True)
        ready: list[int] = []
        while waiting or ready:
            allowed = self.growth.length(step, self.longest)
            while waiting and lengths[waiting[-1]] <= allowed:
                heappush(ready, waiting.pop())
            batch = heappop(ready) if ready else waiting.pop()
            parts = min(self.growth.parts(step), len(self._batches(epoch)[batch]))
            for part in range(parts):
                too_long = lengths[batch] > self.growth.length(step + part, self.longest)
                yield Turn(epoch, batch, part, parts, too_long)
            step += parts

    def _first_step(self, epoch: int) -> int:
        """How many batches the epochs before this one have."""
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + self._count(len(self._starts) - 1))
        return self._starts[epoch]
