"""Scoring a finished arm, in its own process: on its held-out split, and on the other data that the study asks for.

Where the data have no test split, dev is scored, by which the best checkpoint was chosen too; the result says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.base.errors import CheckpointError
from glassformer.store.folders import newest, read_state
from glassformer.study.result import Result, learning_curve, training_seconds
from glassformer.train.finished.use import evaluate, parameters
from glassformer.train.recipe import anchored, load_recipe, override
from glassformer.train.tasks import task_of


def score(run: Path, values: Mapping[str, Any], other_data: Mapping[str, Any]) -> Result:
    """Score the run's best checkpoint and collect the figures of its training.

    Errors: those of `evaluate`; `CheckpointError` if the run has no intact checkpoint.
    """
    recipe = load_recipe(run / "recipe.toml")
    last = newest(run).folder
    if last is None:
        raise CheckpointError(
            f"{run} has no intact checkpoint to score. Delete that folder; the study then trains the run again."
        )
    state = read_state(last)
    split = task_of(recipe.data).held_out
    by_length = task_of(recipe.data).decoded
    elsewhere = anchored(override(recipe, other_data))
    return Result(
        values=dict(values),
        seed=recipe.training.seed,
        metric=recipe.training.metric,
        split=split,
        test=evaluate(run, recipe, split, by_length=by_length),
        other_data=dict(other_data),
        other=evaluate(run, elsewhere, task_of(elsewhere.data).held_out, by_length=by_length) if other_data else None,
        curve=learning_curve(run, recipe.training.metric),
        parameters=parameters(run)[1],
        steps=state["step"],
        seconds=training_seconds(run),
        data=state["data"]["train"],
    )
