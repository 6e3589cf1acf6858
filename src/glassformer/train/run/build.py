"""Build a run's model, new or from a saved one, its optimizer and its objective, with any mistakes made on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from glassformer.data.dataset import Tokenizers
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import Loaded
from glassformer.train.breaks.table import BREAKS, break_names
from glassformer.train.objective import Objective, objective_for
from glassformer.train.optim.optimizer import build_optimizer
from glassformer.train.recipe import Recipe
from glassformer.train.run.resumable import refuse_other_model
from glassformer.train.sources.prepare import model_config


class Noted(Protocol):
    """What was exchanged in a model."""

    @property
    def notes(self) -> list[str]:
        """Lines for the user."""
        ...


Speed = Callable[..., Noted]
"""Exchanges parts of a model, and of its optimizer if one is given, for faster equals, as `fast.for_training` does."""


class Plain(NamedTuple):
    """Nothing was exchanged."""

    notes: list[str]


def plain(model: Transformer, optimizer: torch.optim.Optimizer | None = None) -> Plain:
    """Leave model and optimizer as they are."""
    return Plain([])


def new_model(recipe: Recipe, tokenizers: Tokenizers) -> Transformer:
    """The model before its first step, on the CPU; it depends only on the recipe and the vocabularies."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.training.seed)  # not `torch.manual_seed`: it seeds other devices too
        model = Transformer(model_config(recipe, tokenizers))
        if names := break_names(recipe.training.broken):
            from glassformer.train.breaks.surgery import WEIGHTS  # here: only runs with mistakes need it

            for name in names:
                if name in WEIGHTS:
                    WEIGHTS[name](model)
        return as_recipe(model, recipe)


def as_recipe(model: Transformer, recipe: Recipe) -> Transformer:
    """Make the mistakes that the recipe asks for in a model that was built right."""
    if names := break_names(recipe.training.broken):
        from glassformer.train.breaks.surgery import SURGERY

        for name in names:
            if name in SURGERY:
                SURGERY[name](model)
    return model


def refuse_changed(run: Path, loaded: Loaded, recipe: Recipe) -> None:
    """Refuse a run whose recipe now asks for another model than its checkpoint holds."""
    refuse_other_model(run, loaded.model.config, model_config(recipe, loaded.tokenizers))


def objective_of(model: Transformer, recipe: Recipe) -> Objective:
    """The objective of the model's head, with the mistakes that the recipe asks for."""
    objective = objective_for(model)
    if names := break_names(recipe.training.broken):
        from glassformer.train.breaks.surgery import OBJECTIVE

        for name in names:
            objective = OBJECTIVE[name](objective) if name in OBJECTIVE else objective
    return objective


def optimizer_of(model: Transformer, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer that the recipe asks for; it computes its own products in bfloat16 if the run does."""
    training = recipe.training
    dtype = torch.bfloat16 if training.precision == "bfloat16" else None
    return build_optimizer(model, recipe.optimizer, learning_rate=training.learning_rate, dtype=dtype)


def broken_notes(recipe: Recipe) -> list[str]:
    """Lines for the user: each mistake that the run makes on purpose, and the symptom to watch for."""
    return [
        f"broken on purpose ({name}): {BREAKS[name].what} Watch: {BREAKS[name].symptom}"
        for name in break_names(recipe.training.broken)
    ]
