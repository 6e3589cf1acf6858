"""`glassformer train RECIPE`: a new run."""

from __future__ import annotations

from contextlib import nullcontext

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import RUNS, check_room, room_for, run_folder
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.launched import launched
from glassformer.train.recipe import anchored, load_recipe, override


def run(arguments: Arguments) -> int:
    """Train what a recipe says, in a folder that does not exist yet."""
    broken = {"training.broken": arguments.options["break"]} if "break" in arguments.options else {}
    recipe = anchored(override(load_recipe(str(arguments.target)), arguments.changes | broken))
    out = run_folder(arguments.options.get("out"), RUNS / recipe.name)
    place = launched()
    if not place.first and set(arguments.options) & {"dry-run", "find-learning-rate", "gradient-noise"}:
        return 0  # the first of several processes prints it once, of a process alone
    if "dry-run" in arguments.options:
        from glassformer.cli.before import dry_run

        return dry_run(recipe, out, as_json="json" in arguments.options)
    if "find-learning-rate" in arguments.options:
        from glassformer.cli.before import find_rate

        return find_rate(recipe)
    if "gradient-noise" in arguments.options:
        from glassformer.cli.before import noise

        return noise(recipe)
    if "json" in arguments.options:
        raise ConfigError("--json belongs to --dry-run; a run writes its figures to metrics.jsonl. Leave one out.")
    overwrite = "overwrite" in arguments.options
    if place.first:
        check_room(out, overwrite)
    from glassformer.cli.follow import (  # after the checks, as importing torch takes a second
        Signals,
        follow,
        next_command,
    )
    from glassformer.train.distributed import joined
    from glassformer.train.session import start

    team = joined(place, recipe.training.device, recipe.distributed.timeout, out)
    with Signals() as signals, team as ranks:
        with room_for(out) if place.first else nullcontext():
            session = start(recipe, out, ranks)
        return follow(
            session,
            out,
            signals,
            hint=next_command(out, recipe.data),
            agreed=ranks.largest,
            track=recipe.training.track,
        )
