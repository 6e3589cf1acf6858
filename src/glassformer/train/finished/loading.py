"""A run's model, loaded where its recipe says and with the mistakes that it asks for; and what it was not shown."""

from __future__ import annotations

from pathlib import Path

from glassformer.foundation.runtime import choose_device, choose_threads, from_environment
from glassformer.store.checkpoint import Loaded, load
from glassformer.store.mean import load_mean
from glassformer.train.finished.other_data import refuse_other_cut
from glassformer.train.finished.passed_over import told
from glassformer.train.recipe import Recipe
from glassformer.train.run.build import as_recipe, refuse_changed
from glassformer.train.sources.prepare import prepare_split
from glassformer.train.sources.run_data import Split


def load_run(run: Path, recipe: Recipe, average: int | None = None) -> Loaded:
    """The best checkpoint of a run, or the mean of its `average` newest, where the recipe says and with its threads."""
    device, _ = choose_device(recipe.training.device)
    choose_threads(from_environment()[0] or recipe.training.threads)  # training alone must have as many as before
    loaded = told(load(run, device=device) if average is None else load_mean(run, average, device=device))
    refuse_changed(run, loaded, recipe)
    as_recipe(loaded.model, recipe)
    return loaded


def dev_split(run: Path, recipe: Recipe, loaded: Loaded) -> Split:
    """The dev split of a run, which the model that was loaded has not learned from.

    Errors: those of reading, and `CheckpointError` where it is cut from another training text, or elsewhere.
    """
    split = prepare_split(recipe, loaded.tokenizers, "dev")
    refuse_other_cut(run, recipe.data, loaded.state, split.digest())
    return split
