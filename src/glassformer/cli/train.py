"""`glassformer train RECIPE`: train a new run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.base.launched import launched
from glassformer.cli.arguments import Arguments
from glassformer.cli.flags.base import recipe_of, refuse_not_taken
from glassformer.cli.idle import refuse_idle_decoding
from glassformer.cli.runs import RUNS, check_room, room_for, run_folder
from glassformer.data.file_checks import refuse_missing
from glassformer.store.files import absolute
from glassformer.train.recipe import Recipe, anchored, override
from glassformer.train.tasks import task_of

TRIALS = ("dry-run", "find-learning-rate", "gradient-noise")
"""Flags that examine a run in advance and create none."""


def run(arguments: Arguments) -> int:
    """Train a recipe in a new run folder."""
    loaded, changes = recipe_of(str(arguments.target), arguments.options), with_break(arguments)
    recipe = anchored(override(loaded, changes))
    refuse_missing(recipe.data)
    task = task_of(recipe.data)
    if task.window is None:  # running text: [decode] is used for its samples and later texts
        refuse_idle_decoding(f"the recipe {recipe.name}", recipe.data, changes)
    out = run_folder(arguments.options.get("out"), RUNS / recipe.name)
    if (other := recipe.training.start_from) is not None and absolute(Path(other).expanduser()) == absolute(out):
        raise ConfigError(f"A run cannot start from the run that it replaces, {out}. Name another folder with --out.")
    refuse_not_taken(recipe, arguments.options, changes)
    trial, place = trial_of(arguments), launched()
    if trial is not None:
        return look(trial, recipe, out, as_json="json" in arguments.options) if place.first else 0
    overwrite = "overwrite" in arguments.options
    if place.first:
        check_room(out, overwrite)
    from glassformer.cli.follow import (  # after the checks, as importing torch takes a second
        Signals,
        follow,
    )
    from glassformer.fast import for_training
    from glassformer.train.ranks.distributed import joined
    from glassformer.train.run.session import start

    team = joined(place, recipe.training.device, recipe.distributed.timeout, out)
    with Signals() as signals, team as ranks:
        with room_for(out) if place.first else nullcontext():
            session = start(recipe, out, ranks, for_training)
        return follow(
            session,
            out,
            signals,
            hint=task.next_command(out),
            agreed=ranks.largest,
            track=recipe.training.track,
        )


def with_break(arguments: Arguments) -> dict[str, object]:
    """Return the settings that were given, with `--break NAME` as short for `--training.broken NAME`."""
    if "break" not in arguments.options:
        return arguments.changes
    if "training.broken" in arguments.changes:
        raise ConfigError("--break and --training.broken are the same setting. Give only one, with all the names.")
    return arguments.changes | {"training.broken": arguments.options["break"]}


def trial_of(arguments: Arguments) -> str | None:
    """Return which of `TRIALS` was asked for, if any. Errors: `ConfigError` for two, and for --json without one."""
    asked = [name for name in TRIALS if name in arguments.options]
    if len(asked) > 1:
        raise ConfigError(
            f"--{asked[0]} and --{asked[1]} are two separate checks before a run. Give only one of them, then run the "
            "command again with the other."
        )
    if "json" in arguments.options and not asked:
        raise ConfigError(
            f"--json works only with {', '.join(f'--{name}' for name in TRIALS)}; a run writes its figures to "
            "metrics.jsonl. Remove it."
        )
    return asked[0] if asked else None


def look(trial: str, recipe: Recipe, out: Path, *, as_json: bool) -> int:
    """Run a trial, and return the exit code."""
    from glassformer.cli.before import dry_run, find_rate, noise

    if trial == "dry-run":
        return dry_run(recipe, out, as_json=as_json)
    return (find_rate if trial == "find-learning-rate" else noise)(recipe, as_json=as_json)
