"""`glassformer evaluate RUN`: how good the answers of a run are."""

from __future__ import annotations

import json
import math
import sys

from glassformer.cli.arguments import Arguments
from glassformer.cli.runs import existing_run, recipe_of
from glassformer.train.recipe import one_of, override


def run(arguments: Arguments) -> int:
    """Score a split, with other data or decoding than the run's recipe says where that is asked for."""
    folder = existing_run(str(arguments.target))
    split = arguments.options.get("split", "test")
    one_of(("dev", "test"), split, "--split")
    recipe = override(recipe_of(folder), arguments.changes)
    from glassformer.train.use import evaluate

    print(f"Scoring {folder} on its {split} split.", file=sys.stderr)
    metrics = evaluate(folder, recipe, split)
    print(as_json(metrics) if "json" in arguments.options else as_table(metrics))
    return 0


def as_json(metrics: dict[str, float | int | str]) -> str:
    """One object; a number that is not finite, which JSON cannot say, is null."""
    broken = {name: None for name, each in metrics.items() if isinstance(each, float) and not math.isfinite(each)}
    return json.dumps(metrics | broken)


def as_table(metrics: dict[str, float | int | str]) -> str:
    """A line for each figure."""
    width = max(map(len, metrics))
    shown = {name: f"{each:.4f}" if isinstance(each, float) else f"{each}" for name, each in metrics.items()}
    return "\n".join(f"{name:{width}}  {each}" for name, each in shown.items())
