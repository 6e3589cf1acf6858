"""Divide samples into batches: little padding, every sample once per epoch, and a new order each time.

An epoch depends only on (seed, epoch), so a run that resumes at step n gets the batches that it would have had. Samples
are sorted by the longer of their two lengths and then by the difference of the lengths, so that neighbours need little
padding on either side; samples of equal lengths are in random order. They are cut into batches by a budget of tokens,
and the batches are shuffled.

Batches that start small or short and grow: each sample is still in one batch per epoch, and none is cut or dropped.

A pair that is cut would say something else, so under a length warm-up the long ones wait: a step takes the first batch
in its epoch's order that is short enough for it. If none is left in the epoch, it takes the shortest that is: a later
epoch starts when all samples were seen, never before. Under a batch warm-up the full batch is taken in equal parts over
consecutive steps. Both depend only on (seed, step), as the full batches depend only on (seed, epoch).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.growth import Growth

Indices = NDArray[np.int64]
Lengths = NDArray[np.int64] | Sequence[int]


ROWS = 8
"""Batches of different lengths have a multiple of this many rows: the fewer shapes there are, the less often a
processor's library has to compile a matrix product for a new one, which for bfloat16 takes longer than the product."""


class Turn(NamedTuple):
    """What a step takes: a part of a batch of an epoch."""

    epoch: int
    batch: int
    """The batch's place in the epoch's order."""
    part: int
    parts: int
    too_long: bool
    """Whether the batch is longer than the step allows, because its epoch had no shorter one left."""


class BatchSampler:
    """Batches of sample indices with at most `batch_tokens` tokens, padding and both sides included.

    Multi30k English-German (29,000 pairs, shared bpe of 8,000, 4,096 tokens): 2 % of the batches is padding, instead of
    55 % in random order. `pool` samples, drawn at random, are sorted together; a small pool mixes the batches more and
    pads more (12,000: 4 %). None sorts all together: the batches of two epochs then differ only by chance among samples
    of equal lengths. `place` says where a user finds one side of a sample, for the error about one that no batch can
    hold. `growth` limits the first steps.
    """

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
        self.source = np.asarray(lengths_source, np.int64)
        self.target = np.asarray(lengths_target, np.int64)
        self.batch_tokens, self.seed = batch_tokens, seed
        self.pool = len(self.source) if pool is None else pool
        self._check(place or by_number)
        self._lengths_differ = any(side.min() < side.max() for side in (self.source, self.target))
        self._last: tuple[int, list[Indices]] = (-1, [])  # the last epoch made: steps ask for it one by one
        self._starts = [0]  # how many batches come before each epoch, as far as known
        self.growth = growth or Growth()
        self.longest = int(max(self.source.max(), self.target.max()))
        self.turns: list[Turn] = []
        """The turn of each step up to the end of the epoch in which the warm-up ends."""
        epoch = 0
        while len(self.turns) < self.growth.steps:
            self.turns += self._turns(epoch, len(self.turns) + 1)
            epoch += 1
        self._steps_before = self._first_step(epoch)

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of this epoch (counted from 0), in the order of training."""
        return list(self._batches(epoch))

    def at(self, step: int) -> tuple[int, Indices]:
        """The epoch and the sample indices of this step of training (counted from 0)."""
        assert step >= 0, step
        if step < len(self.turns):
            turn = self.turns[step]
            return turn.epoch, np.array_split(self._batches(turn.epoch)[turn.batch], turn.parts)[turn.part]
        step += self._steps_before - len(self.turns)
        while self._starts[-1] <= step:
            self._first_step(len(self._starts))
        epoch = bisect_right(self._starts, step) - 1
        return epoch, self._batches(epoch)[step - self._starts[epoch]]

    def stream(self, start_step: int = 0) -> Iterator[tuple[int, Indices]]:
        """`at(start_step)`, `at(start_step + 1)` and so on, without end."""
        step = start_step
        while True:
            yield self.at(step)
            step += 1

    def padding_share(self, epoch: int = 0) -> float:
        """The share of padding in this epoch's batches, 0 to 1."""
        widths = ((len(rows), self.source[rows].max() + self.target[rows].max()) for rows in self._batches(epoch))
        return 1 - float((self.source + self.target).sum() / sum(rows * width for rows, width in widths))

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

    def _batches(self, epoch: int) -> list[Indices]:
        if self._last[0] != epoch:
            self._last = (epoch, self._make(epoch))
        return self._last[1]

    def _make(self, epoch: int) -> list[Indices]:
        # Raw output of Philox: numpy promises it for all versions, which it does not for its shuffles.
        random = np.random.Philox(np.random.SeedSequence((self.seed, epoch)))
        shuffled = np.argsort(random.random_raw(len(self.source)), kind="stable")
        pools = [shuffled[first : first + self.pool] for first in range(0, len(shuffled), self.pool)]
        batches = [batch for pool in pools for batch in self._cut(self._sorted(pool))]
        return [batches[place] for place in np.argsort(random.random_raw(len(batches)), kind="stable")]

    def _sorted(self, pool: Indices) -> Indices:
        """Sort by the longer side, then by the difference, alternately up and down, so that neighbours stay similar."""
        longer = np.maximum(self.source[pool], self.target[pool])
        difference = self.target[pool] - self.source[pool]
        return pool[np.lexsort((np.where(longer % 2 == 0, difference, -difference), longer))]

    def _cut(self, order: Indices) -> list[Indices]:
        """Cut batches from the front, each as long as the budget allows, in multiples of `ROWS` if lengths differ."""
        sides = list(zip(self.source[order].tolist(), self.target[order].tolist(), strict=True))
        batches: list[Indices] = []
        first = 0
        while first < len(sides):
            rows = self._fitting(sides, first)
            if self._lengths_differ and rows > ROWS and first + rows < len(sides):
                rows -= rows % ROWS
            batches.append(order[first : first + rows])
            first += rows
        return batches

    def _fitting(self, sides: Sequence[tuple[int, int]], first: int) -> int:
        """How many samples from `first` on fit into the budget."""
        source = target = 0
        for place in range(first, len(sides)):
            source, target = max(source, sides[place][0]), max(target, sides[place][1])
            if (place + 1 - first) * (source + target) > self.batch_tokens:
                return place - first
        return len(sides) - first

    def _count(self, epoch: int) -> int:
        """How many batches this epoch has. With one pool all epochs sort the same lengths, so all are cut alike."""
        if epoch and self.pool >= len(self.source):
            return self._starts[1]
        return len(self._batches(epoch))

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

    def _check(self, place: Callable[[int, str], str]) -> None:
        if len(self.source) != len(self.target) or not len(self.source):
            raise DataError(
                f"A sampler needs a source length and a target length for each sample, and at least one sample; got "
                f"{len(self.source)} source and {len(self.target)} target lengths. Give two lists of the same length."
            )
        if self.pool < 1 or self.seed < 0:
            raise ConfigError(
                f"pool must be at least 1 and seed at least 0; got pool={self.pool} and seed={self.seed}. "
                "Try pool=None and seed=0."
            )
        both = self.source + self.target
        if both.max() > self.batch_tokens:
            row = int(both.argmax())
            side = "source" if self.source[row] > self.target[row] else "target"
            raise DataError(
                f"{place(row, side)} belongs to the longest sample, which has {both[row]} tokens including special "
                f"ones, but a batch holds at most training.batch_tokens={self.batch_tokens}. Set it to at least "
                f"{both[row]}, or remove the samples that are too long: {int((both > self.batch_tokens).sum())} of "
                f"{len(both)}."
            )


def by_number(row: int, side: str) -> str:
    """Name one side of a sample by its number, if nothing more is known of it."""
    return f"The {side} of sample {row} (counted from 0)"
