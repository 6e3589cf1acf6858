"""`glassformer resume RUN`: continue an interrupted run."""

from __future__ import annotations

from glassformer.base.launched import launched
from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.store.folders import checkpoints
from glassformer.train.recipe import override
from glassformer.train.records import refuse_unusable
from glassformer.train.tasks import task_of


def run(arguments: Arguments) -> int:
    """Continue from the newest intact checkpoint, with the same result as if the run had not been interrupted."""
    folder = existing_run(str(arguments.target))
    # Before preparing the data, which may take minutes. The oldest, because the damaged ones are not known yet.
    refuse_unusable(folder, min(checkpoints(folder), default=0))
    place, recipe = launched(), override(recipe_of(folder), arguments.changes)
    from glassformer.cli.follow import (  # after the check, as importing torch takes a second
        Signals,
        follow,
    )
    from glassformer.fast import for_training
    from glassformer.train.ranks.distributed import joined
    from glassformer.train.run.session import resume

    team = joined(place, recipe.training.device, recipe.distributed.timeout, folder)
    with Signals() as signals, team as ranks:
        allowed = arguments.lists.get("allow-change", [])
        session = resume(folder, allowed, arguments.changes, ranks=ranks, speed=for_training)
        return follow(
            session,
            folder,
            signals,
            hint=task_of(recipe.data).next_command(folder),
            agreed=ranks.largest,
            track=recipe.training.track,
        )
