"""Where the arms of a study are on disk, how far each has come, and whether it is the arm that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from glassformer.foundation.errors import CheckpointError
from glassformer.store.json_file import read_json
from glassformer.study.grid import Arm
from glassformer.study.result import Result, result_from
from glassformer.train.recipe import Recipe, load_recipe
from glassformer.train.run.resumable import flat

LOGS = "logs"
"""Made first, so that a folder that has it is known as a study."""
FILLED_IN = ("data.documents",)
"""Settings that a run finds out by its text and writes into its recipe, where they were left open."""


class StudyFolder:
    """`runs/` has a run folder for each arm, `scores/` its figures once it is finished, `logs/` what it said."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, arm: Arm) -> Path:
        """Its run folder."""
        return self.root / "runs" / arm.folder

    def scores(self, arm: Arm) -> Path:
        """The file of its figures."""
        return self.root / "scores" / f"{arm.folder}.json"

    def log(self, arm: Arm) -> Path:
        """What its process wrote on standard error."""
        return self.root / LOGS / f"{arm.folder}.txt"

    def result(self, arm: Arm, other: Mapping[str, object]) -> Result | None:
        """Its figures, if it is finished and was scored on these other data too.

        Errors: `CheckpointError` for a file that is none of ours.
        """
        path = self.scores(arm)
        if not path.is_file() or not (self.run(arm) / "recipe.toml").is_file():
            return None
        found = result_from(read_json(path), str(path))
        return found if found.other_data == dict(other) else None

    def state(self, arm: Arm, other: Mapping[str, object]) -> str:
        """How far the arm has come: new, begun or finished.

        Errors: `CheckpointError` where its folder holds a run of another recipe, with the difference.
        """
        kept = self.run(arm) / "recipe.toml"
        if not kept.is_file():
            return "new"
        differing = differences(load_recipe(kept), arm.recipe)
        if differing:
            raise CheckpointError(
                f"{self.run(arm)} was trained with other settings than are asked for: {'; '.join(differing)}. "
                "Ask for the same settings, or give the new study a folder of its own with --out."
            )
        return "begun" if self.result(arm, other) is None else "finished"


def differences(kept: Recipe, asked: Recipe) -> list[str]:
    """Each setting that differs, with both values; not what was left open and filled in."""
    ours, theirs = flat(asdict(kept)), flat(asdict(asked))
    differing = [name for name in theirs if ours[name] != theirs[name]]
    return [
        f"{name} is {ours[name]!r} there and {theirs[name]!r} here"
        for name in differing
        if not (name in FILLED_IN and theirs[name] is None)
    ]
