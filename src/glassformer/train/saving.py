"""The checkpoints of a run in training: when one is saved, what it holds, and which older ones then go."""

from __future__ import annotations

from pathlib import Path

import torch

from glassformer.model.transformer import Transformer
from glassformer.store.checkpoint import save
from glassformer.store.folders import rotate, step_folder
from glassformer.train.events import Saved
from glassformer.train.optimizer import optimizer_state
from glassformer.train.prepare import Prepared
from glassformer.train.resumable import Standing


class Saver:
    """Writes the checkpoints of one run."""

    def __init__(self, run: Path, prepared: Prepared, model: Transformer, optimizer: torch.optim.Optimizer) -> None:
        self.run = run
        self.prepared = prepared
        self.model = model
        self.optimizer = optimizer

    def save(self, standing: Standing) -> Saved:
        """A checkpoint of the run as it stands, and the older ones deleted that need not be kept."""
        folder = step_folder(self.run, standing.step)
        moments = optimizer_state(self.optimizer, self.model)
        save(folder, self.model, self.prepared.tokenizers, optimizer=moments, state=standing.to_state())
        rotate(self.run, self.prepared.recipe.checkpoint.keep, standing.best.step, complete=folder)
        return Saved(standing.step, folder)
