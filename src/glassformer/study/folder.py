"""The folder of a study: where its arms are, how far each has come, and whether an arm fits the recipe asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from glassformer.base.errors import CheckpointError
from glassformer.store.json_file import read_json
from glassformer.study.grid import Arm
from glassformer.study.result import Result, result_from
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.resumable import flat
from glassformer.train.tasks import task_of

LOGS = "logs"
"""Created first, so that its presence marks a folder as a study."""
FILLED_IN = ("data.documents",)
"""Settings that a run determines from its text and writes into its recipe if they were left open."""


class StudyFolder:
    """`runs/` has a run folder for each arm, `scores/` its result once it is finished, `logs/` its standard error."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, arm: Arm) -> Path:
        """Return the arm's run folder."""
        return self.root / "runs" / arm.folder

    def scores(self, arm: Arm) -> Path:
        """Return the file of the arm's result."""
        return self.root / "scores" / f"{arm.folder}.json"

    def log(self, arm: Arm) -> Path:
        """Return the file of what the arm's process wrote to standard error."""
        return self.root / LOGS / f"{arm.folder}.txt"

    def result(self, arm: Arm, other: Mapping[str, object]) -> Result | None:
        """Return the arm's result if it is finished and was scored on these other data too, else None.

        Errors: `CheckpointError` for a file that holds no result.
        """
        path, recipe = self.scores(arm), self.run(arm) / "recipe.toml"
        if not path.is_file() or not recipe.is_file():
            return None
        found = result_from(read_json(path), str(path), task_of(load_recipe(recipe).data).held_out)
        return found if found.other_data == dict(other) else None

    def state(self, arm: Arm, other: Mapping[str, object]) -> str:
        """Return how far the arm has come: new, begun or finished.

        Errors: `CheckpointError` with the differences if its folder holds a run of another recipe.
        """
        kept = self.run(arm) / "recipe.toml"
        if not kept.is_file():
            return "new"
        differing = differences(load_recipe(kept), arm.recipe)
        if differing:
            raise CheckpointError(
                f"A run of a study keeps its settings; {self.run(arm)} was trained with others: "
                f"{'; '.join(differing)}. Use the same settings, or choose another folder with --out."
            )
        return "begun" if self.result(arm, other) is None else "finished"


def differences(kept: Recipe, asked: Recipe) -> list[str]:
    """List each setting that differs, with both values, except settings that were left open and filled in."""
    ours, theirs = flat(asdict(kept)), flat(asdict(asked))
    differing = [name for name in theirs if ours[name] != theirs[name]]
    return [
        f"{name} is {ours[name]!r} there and {theirs[name]!r} here"
        for name in differing
        if not (name in FILLED_IN and theirs[name] is None)
    ]
