"""Load a run's model, where and with which mistakes its recipe says; and the dev split that it was not trained on."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from glassformer.base.runtime import choose_device
from glassformer.decode.prepare import chosen_precision, device_of
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded, load, load_mean
from glassformer.train.finished.other_data import refuse_other_cut
from glassformer.train.finished.passed_over import told
from glassformer.train.recipe import Recipe
from glassformer.train.run.build import as_recipe, refuse_changed
from glassformer.train.settings import DecodeConfig
from glassformer.train.sources.prepare import prepare_split
from glassformer.train.sources.run_data import Split

LOG = logging.getLogger(__name__)


def load_run(run: Path, recipe: Recipe, average: int | None = None) -> Loaded:
    """Load the best checkpoint of a run, or the mean of its `average` newest, on the recipe's device.

    Its threads are not those of training, but `decode.threads`: who computes with it chooses them.
    """
    device, _ = choose_device(recipe.training.device)
    loaded = told(load(run, device=device) if average is None else load_mean(run, average, device=device))
    refuse_changed(run, loaded, recipe)
    as_recipe(loaded.model, recipe)
    return loaded


def tell_decoding(model: Transformer, decode: DecodeConfig, threads: str) -> None:
    """Log with which precision a loaded model is going to write and why, its `threads` in words, and a long wait."""
    _, precision = chosen_precision(decode.precision, device_of(model))
    cache = "; keys and values in 8 bits" if decode.cache == "int8" else ""
    compiles = "; TorchInductor compiles the first steps, for up to a minute" if decode.compile else ""
    LOG.info(f"decoding: {precision}{cache}; {threads}{compiles}")


def placed_like(other: Recipe, recipe: Recipe) -> Recipe:
    """The recipe of another run, which works with that of `recipe`: on its device."""
    return replace(other, training=replace(other.training, device=recipe.training.device))


def dev_split(run: Path, recipe: Recipe, loaded: Loaded) -> Split:
    """The dev split of a run, which the loaded model was not trained on.

    Errors: those of reading, and `CheckpointError` if it is cut from another training text, or at another place.
    """
    split = prepare_split(recipe, loaded.tokenizers, "dev")
    refuse_other_cut(run, recipe.data, loaded.state, split.digest())
    return split
