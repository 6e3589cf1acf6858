"""Who of several processes writes the checkpoints of a run: the first, or of a model that is cut all together."""

from __future__ import annotations

from pathlib import Path

import torch

from glassformer.model.transformer import Transformer
from glassformer.store.folders import rotate, step_folder
from glassformer.train.distributed import Ranks
from glassformer.train.events import Saved
from glassformer.train.optimizer import optimizer_state
from glassformer.train.prepare import Prepared
from glassformer.train.resumable import Standing
from glassformer.train.saving import Saver
from glassformer.train.sharded import put_back, save_sharded
from glassformer.train.team import is_sharded


class ShardedSaver(Saver):
    """Writes the checkpoints of a run whose model is cut over several processes, together with the others."""

    def __init__(
        self, run: Path, prepared: Prepared, model: Transformer, optimizer: torch.optim.Optimizer, ranks: Ranks
    ) -> None:
        super().__init__(run, prepared, model, optimizer)
        self.ranks = ranks

    def save(self, standing: Standing) -> Saved:
        """A checkpoint of the run as it stands; the first process deletes the older ones."""
        folder = step_folder(self.run, standing.step)
        put_back(self.model)
        moments, tokenizers = optimizer_state(self.optimizer, self.model), self.prepared.tokenizers
        save_sharded(folder, self.model, tokenizers, self.ranks, optimizer=moments, state=standing.to_state())
        if self.ranks.first:
            rotate(self.run, self.prepared.recipe.checkpoint.keep, standing.best.step, complete=folder)
        return Saved(standing.step, folder)


class Bystander(Saver):
    """Of a process that has the whole model, as the first has, who saves it."""

    def save(self, standing: Standing) -> Saved:
        """Nothing: the first process does it."""
        return Saved(standing.step, step_folder(self.run, standing.step))


def saver_of(
    run: Path, prepared: Prepared, model: Transformer, optimizer: torch.optim.Optimizer, ranks: Ranks
) -> Saver:
    """Who writes the checkpoints of a run, seen from this process."""
    if is_sharded(next(model.parameters())):
        return ShardedSaver(run, prepared, model, optimizer, ranks)
    return (Saver if ranks.first else Bystander)(run, prepared, model, optimizer)
