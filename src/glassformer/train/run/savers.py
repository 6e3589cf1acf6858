"""Which process writes the checkpoints of a run: the first one, or all of them together for a sharded model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Moments, Snapshot
from glassformer.store.lock import RunLock
from glassformer.train.optim.average import Average
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.ranks.sharded import agreed, is_sharded, put_back, take_parts, write_parts
from glassformer.train.record.events import Saved, Unsaved
from glassformer.train.run.resumable import Standing
from glassformer.train.run.saving import Saver
from glassformer.train.sources.run_data import RunData


class ShardedSaver(Saver):
    """Writes the checkpoints of a sharded model, together with the other processes.

    Each process has a snapshot of its parts, and their writing threads communicate among themselves. If one of them
    fails to write, none has written, so all owe the same checkpoint. The first process reports, holds the lock and
    deletes old checkpoints.
    """

    def __init__(
        self,
        lock: RunLock,
        prepared: RunData,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        best: int | None,
        average: Average | None,
        ranks: Ranks,
    ) -> None:
        super().__init__(lock, prepared, model, optimizer, best, average)
        self.ranks = ranks
        self.writers = ranks.aside(prepared.recipe.distributed.timeout)

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Save as with one process; all processes call it after the same step."""
        put_back(self.model)
        yield from super().save(standing)

    def _snapshot(self, kept: Moments, state: Mapping[str, object]) -> Snapshot:
        return take_parts(self.model, self.prepared.tokenizers, self.ranks, optimizer=kept, state=state)

    def _written(self, folder: Path, snapshot: Snapshot) -> tuple[str, ...]:
        with agreed(self.writers):
            notes = self._ready() if self.ranks.first else ()
        write_parts(folder, snapshot, self.writers)
        return notes

    def _rotate(self, complete: Path) -> tuple[str, ...]:
        return super()._rotate(complete) if self.ranks.first else ()


class Bystander(Saver):
    """The saver of a process that has the same whole model as the first process, which saves it."""

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Do nothing: the first process saves, and reports it."""
        yield from ()


def saver_of(
    lock: RunLock,
    prepared: RunData,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    best: int | None,
    average: Average | None,
    ranks: Ranks,
) -> Saver:
    """The object with which this process takes part in writing the checkpoints."""
    if is_sharded(next(model.parameters())):
        return ShardedSaver(lock, prepared, model, optimizer, best, average, ranks)
    return (Saver if ranks.first else Bystander)(lock, prepared, model, optimizer, best, average)
