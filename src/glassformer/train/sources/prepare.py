"""Prepare what a recipe names: its data, and the configuration of the model for their vocabularies."""

from __future__ import annotations

from glassformer.data.dataset import Tokenizers
from glassformer.nn.config import ModelConfig
from glassformer.train.recipe import Recipe
from glassformer.train.sources.run_data import RunData, Split
from glassformer.train.tasks import task_of


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None) -> RunData:
    """Read and encode the training and dev splits; train tokenizers on the training split unless they are given."""
    return task_of(recipe.data).prepare(recipe, tokenizers)


def prepare_split(recipe: Recipe, tokenizers: Tokenizers, name: str) -> Split:
    """Prepare one split for scoring. Errors: those of reading; `DataError` for data that the model does not take."""
    return task_of(recipe.data).split(recipe, tokenizers, name)


def model_config(recipe: Recipe, tokenizers: Tokenizers) -> ModelConfig:
    """The configuration of the model that the recipe asks for, with the vocabularies of the data."""
    return task_of(recipe.data).config(recipe, tokenizers)
