"""Prepare what a recipe names: data of any kind, and the configuration of the model for their vocabularies."""

from __future__ import annotations

from dataclasses import replace

from glassformer.data.config import TEXT, TRAJECTORIES
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.words import Labels
from glassformer.data.trajectories.spaces import Spaces
from glassformer.nn.config import ModelConfig
from glassformer.train.recipe import Recipe
from glassformer.train.sources.pairs_data import prepare_pairs, prepare_pairs_split
from glassformer.train.sources.run_data import RunData, Split
from glassformer.train.sources.text_data import prepare_text, prepare_text_split
from glassformer.train.sources.trajectory_data import prepare_trajectories, prepare_trajectory_split

PAIRS = (prepare_pairs, prepare_pairs_split)
KINDS = {TEXT: (prepare_text, prepare_text_split), TRAJECTORIES: (prepare_trajectories, prepare_trajectory_split)}
"""What prepares a run's data, and one split, for the tasks that do not have pairs."""


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None) -> RunData:
    """Read and encode the training and dev splits; train tokenizers on the training split unless they are given."""
    return KINDS.get(recipe.data.task, PAIRS)[0](recipe, tokenizers)


def prepare_split(recipe: Recipe, tokenizers: Tokenizers, name: str) -> Split:
    """Prepare one split for scoring. Errors: those of reading; `DataError` for data that the model does not take."""
    return KINDS.get(recipe.data.task, PAIRS)[1](recipe, tokenizers, name)


def model_config(recipe: Recipe, tokenizers: Tokenizers) -> ModelConfig:
    """The configuration of the model that the recipe asks for, with the vocabularies of the data.

    Two vocabularies may have the same size, so the tokenizers decide whether one matrix can embed both.
    """
    source, target = tokenizers
    if isinstance(target, Spaces):
        labels, numbers = (len(target.entries), None) if target.entries else (None, target.n_acted)
        size = {"n_labels": labels, "n_numbers": numbers}
        return recipe.model.build(recipe.data.layout, None, n_features=target.n_features, **size)
    if isinstance(target, Labels):
        return recipe.model.build(recipe.data.layout, source.vocab_size, n_labels=len(target.entries))
    own = None if source is target else source.vocab_size
    config = recipe.model.build(recipe.data.layout, target.vocab_size, own)
    return config if source is target else replace(config, share_embeddings=False)
