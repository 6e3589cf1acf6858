"""Who of several processes writes the checkpoints of a run: the first, or of a model that is cut all together."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from glassformer.model.transformer import Transformer
from glassformer.store.folders import step_folder
from glassformer.store.lock import RunLock
from glassformer.train.average import Average, averaged, merged
from glassformer.train.cut_model import is_sharded, put_back
from glassformer.train.distributed import Ranks
from glassformer.train.events import Saved, Unsaved
from glassformer.train.optimizer import optimizer_state
from glassformer.train.records import sync_figures
from glassformer.train.resumable import Standing
from glassformer.train.run_data import RunData
from glassformer.train.saving import Saver
from glassformer.train.sharded import save_sharded


class ShardedSaver(Saver):
    """Writes the checkpoints of a run whose model is cut over several processes, together with the others.

    Training waits for it, and a disk without room ends the run: the parts are in the memory of all of them.
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

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """A checkpoint of the run as it stands; the first process deletes the older ones."""
        folder = step_folder(self.run, standing.step)
        put_back(self.model)
        if self.ranks.first:
            self.lock.take()
        notes = self._recipe_again() if self.ranks.first else ()
        if self.ranks.first:
            sync_figures(self.run)
        kept, tokenizers = optimizer_state(self.optimizer, self.model), self.prepared.tokenizers
        if self.average:
            kept = merged(kept, self.average.state())
        with averaged(self.average, standing.step):
            save_sharded(folder, self.model, tokenizers, self.ranks, optimizer=kept, state=standing.to_state())
        if standing.step == standing.best.step:
            self.kept_best = standing.step
        if self.ranks.first:
            notes = (*notes, *self._rotate(folder))
        yield Saved(standing.step, folder, notes)


class Bystander(Saver):
    """Of a process that has the whole model, as the first has, who saves it."""

    def save(self, standing: Standing) -> Iterator[Saved | Unsaved]:
        """Nothing: the first process does it, and tells of it."""
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
    """Who writes the checkpoints of a run, seen from this process."""
    if is_sharded(next(model.parameters())):
        return ShardedSaver(lock, prepared, model, optimizer, best, average, ranks)
    return (Saver if ranks.first else Bystander)(lock, prepared, model, optimizer, best, average)
