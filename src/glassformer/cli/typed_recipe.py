"""The recipe of a command with the settings that were typed, and the refusal of those that would change nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields

from glassformer.base.errors import ConfigError, all_of
from glassformer.cli.settings import flag_of
from glassformer.data.config import DataConfig
from glassformer.decode.settings import BeamSettings
from glassformer.train.recipe import Recipe, classic, load_recipe, override
from glassformer.train.settings import DecodeConfig
from glassformer.train.tasks import task_of

# The recipe that a command starts from, before the settings on its command line, and what these may not be.


def named_recipe(target: str, options: Mapping[str, str]) -> Recipe:
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


# A recipe with another beam width than its own: which of its other settings of a beam still hold.

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


# Refuses settings of `[decode]` that were given where they would change nothing.


def refuse_idle_decoding(who: object, data: DataConfig, changes: Iterable[str]) -> None:
    """Refuse decode settings if the run writes no answers, or if they would change nothing.

    The `ConfigError` names all of them and `who`; `data` is the data section of its recipe.
    """
    task = task_of(data)
    if (read := task.decode_settings) is None:
        return
    idle = [name for name in changes if name.startswith("decode.") and name.removeprefix("decode.") not in read]
    if idle:
        flags = all_of([flag_of(*name.split(".", 1)) for name in idle])
        raise ConfigError(
            f"[decode] controls how answers are written, but {who} {task.does}, so {flags} would have no "
            f"effect. Remove {'it' if len(idle) == 1 else 'them'}."
        )


def refuse_idle_seed(decode: DecodeConfig, changes: Collection[str]) -> None:
    """Refuse a random seed that was given where nothing is drawn. Errors: `ConfigError`."""
    if "decode.seed" in changes and decode.temperature == 0:
        raise ConfigError(
            f"{drawless(decode)} draws nothing, so decode.seed={decode.seed} would have no effect. Remove decode.seed, "
            "or sample instead (for example decode.temperature=0.8)."
        )


def refuse_idle_search(decode: DecodeConfig, changes: Collection[str], *, scored: bool = False) -> None:
    """Refuse settings of a beam search that were given where they would change nothing. Errors: `ConfigError`.

    `scored`: whether the answers' scores are shown, which the length penalty is part of without a beam, too.
    """
    if "decode.diversity" in changes and decode.beam_groups == 1:
        raise ConfigError(
            f"decode.diversity keeps groups of a beam apart, but there is only one, so {decode.diversity} would have "
            "no effect. Set decode.beam_groups, or remove decode.diversity."
        )
    if "decode.length_penalty" in changes and decode.beam == 1 and not scored:
        raise ConfigError(
            f"decode.length_penalty ranks the answers of a beam, but decode.beam is 1, so {decode.length_penalty} "
            "would have no effect. Set decode.beam, or remove decode.length_penalty."
        )


def drawless(decode: DecodeConfig) -> str:
    """Return the name of what chooses the tokens at temperature 0, for a message."""
    if decode.beam > 1:
        return "Beam search"
    return "Contrastive search" if decode.contrastive_alpha else "Greedy decoding"
