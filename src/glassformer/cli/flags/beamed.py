"""A recipe with another beam width than its own: which of its other settings of a beam still hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from glassformer.base.errors import ConfigError
from glassformer.decode.beam_settings import BeamSettings
from glassformer.train.recipe import Recipe, override

NO_BEAM = {f"decode.{each.name}": each.default for each in fields(BeamSettings)}
"""The settings of a beam where there is none."""
NEED_BEAM = ("decode.coverage_penalty", "decode.beam_groups", "decode.early_stop")


def beamed(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with changes. Where they turn its beam off, they turn off what needs one, too.

    Errors: `ConfigError`, also where the recipe's groups do not divide the beam of the changes.
    """
    beam, groups = changes.get("decode.beam"), recipe.decode.beam_groups
    if beam == 1:
        return override(recipe, {**{place: NO_BEAM[place] for place in NEED_BEAM}, **changes})
    if isinstance(beam, int) and beam > 1 and beam % groups and "decode.beam_groups" not in changes:
        raise ConfigError(
            f"decode.beam_groups must divide decode.beam evenly; got decode.beam={beam}, and the recipe of this run "
            f"has {groups} groups. Set decode.beam_groups=1, or try decode.beam={groups * max(1, beam // groups)}."
        )
    return override(recipe, changes)
