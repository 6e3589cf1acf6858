"""`glassformer train RECIPE --dry-run`: what the run will need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.train.recipe import Recipe

if TYPE_CHECKING:
    from glassformer.train.outlook import Outlook


def dry_run(recipe: Recipe, out: Path, *, as_json: bool) -> int:
    """Print it, and write nothing."""
    from glassformer.train.outlook import look_ahead  # here, as importing torch takes a second

    outlook = look_ahead(recipe, out)
    print(json.dumps(outlook.to_dict()) if as_json else "\n".join(lines(recipe, outlook)))
    return 0


def lines(recipe: Recipe, outlook: Outlook) -> list[str]:
    """The outlook in words."""
    from glassformer.train.wording import bytes_text, duration

    memory, disk, pace, data, training = outlook.memory, outlook.disk, outlook.pace, outlook.data, recipe.training
    parts = [("weights", memory.weights), ("gradients", memory.gradients), ("optimizer", memory.optimizer)]
    parts += [("activations", memory.activations), ("peak", memory.peak)]
    width = max(len(name) for name, _ in parts)
    short = "" if disk.kept < disk.free else " -- NOT ENOUGH"
    return [
        *outlook.notes,
        "",
        f"parameters  {outlook.parameters:,}",
        "",
        f"memory      estimated for the largest batch of the first epoch ({training.batch_tokens:,} tokens, accumulate "
        f"{training.accumulate}, recompute {training.recompute}), beyond what the process holds before; without "
        "scoring and saving",
        *(f"            {name:{width}}  {bytes_text(size):>10}" for name, size in parts),
        *(f"            {line}" for line in outlook.heap),
        "",
        f"disk        {bytes_text(disk.checkpoint)} a checkpoint, {bytes_text(disk.kept)} at most with "
        f"checkpoint.keep={recipe.checkpoint.keep}; {bytes_text(disk.free)} free{short}",
        "",
        f"time        {1000 * pace.step_seconds:.0f} ms a step, {pace.tokens_per_second:,.0f} tokens/s, measured over "
        f"{pace.steps} steps; {training.steps:,} steps take {duration(pace.run_seconds)} without scoring and saving",
        "",
        f"data        {data.pairs:,} training pairs, {data.dev_pairs:,} dev pairs; {data.tokens:,} tokens, the longest "
        f"sequence has {data.longest}",
        f"            {data.batches:,} batches an epoch, {data.padding:.1%} of them padding; the run is "
        f"{data.epochs:.1f} epochs",
        "",
        "Nothing was written.",
    ]
