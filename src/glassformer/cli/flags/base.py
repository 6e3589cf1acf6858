"""The recipe that a command starts from, before the settings on its command line, and what these may not be."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from glassformer.base.errors import ConfigError
from glassformer.train.recipe import Recipe, classic, load_recipe


def recipe_of(target: str, options: Mapping[str, str]) -> Recipe:
    """Load a recipe by its name or file, with classic settings if --classic was given."""
    recipe = load_recipe(target)
    return classic(recipe) if "classic" in options else recipe


def refuse_not_taken(recipe: Recipe, options: Mapping[str, str], asked: Collection[str]) -> None:
    """Refuse what was typed in vain, as the run that a recipe starts from has it otherwise. Errors: `ConfigError`."""
    if recipe.training.start_from is None:
        return
    if "classic" in options:
        raise ConfigError(
            "--classic says what model is made, but a run with training.start_from has that of another run. Remove one "
            "of the two."
        )
    from glassformer.train.run.beginning import refuse_overruled  # only here, as importing torch takes a second

    refuse_overruled(recipe, asked)
