"""Exporting a run: its model as a folder that Hugging Face's transformers loads."""

from __future__ import annotations

from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.decode.filters import unwritten
from glassformer.store.export import Exported, Text, refuse_used, write_pretrained
from glassformer.train.finished.loading import load_run
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.tasks import task_of


def export_run(run: Path, folder: Path, average: int | None = None) -> Exported:
    """Write the best checkpoint of a run, or the mean of its `average` newest, as a Hugging Face folder.

    Errors: `ConfigError` for a run that computes what no family of models there does; those of loading and writing.
    """
    recipe = load_recipe(run / "recipe.toml")
    refuse_used(folder)
    refuse_other_reading(run, recipe)
    loaded = load_run(run, recipe, average)
    data = recipe.data
    begins = data.documents is not False
    never = unwritten(task_of(data).layout.decoder, data.objective, ends=begins)
    return write_pretrained(folder, loaded.model, loaded.tokenizers.target, Text(begins, never, data.window), named=run)


def refuse_other_reading(run: Path, recipe: Recipe) -> None:
    """Refuse a run whose model is used in a way that its settings do not tell. Errors: `ConfigError`."""
    if recipe.training.broken:
        raise ConfigError(
            f"{run} makes a mistake on purpose (training.broken={recipe.training.broken!r}), which no exported model "
            "would make. Export a run without it."
        )
    if recipe.data.objective == "prefix":
        raise ConfigError(
            f"{run} reads each prompt in both directions (data.objective='prefix'), which no exported model does. "
            "Export a run with data.objective='next_token'."
        )
