"""The recipe that a command starts from, before the settings on its command line."""

from __future__ import annotations

from collections.abc import Mapping

from glassformer.train.classic import classic
from glassformer.train.recipe import Recipe, load_recipe


def recipe_of(target: str, options: Mapping[str, str]) -> Recipe:
    """Load a recipe by its name or file, with classic settings if --classic was given."""
    recipe = load_recipe(target)
    return classic(recipe) if "classic" in options else recipe
