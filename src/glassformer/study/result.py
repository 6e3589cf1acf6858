"""The figures of a finished arm, of which table and pictures are made: a line of results.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.foundation.errors import CheckpointError
from glassformer.store.files import write_text_atomically

SHARES = ("exact_match", "token_accuracy", "accuracy", "macro_f1")
"""Metrics from 0 to 1, of which one can ask when they reach 99 %."""
ENOUGH = 0.99

Figures = dict[str, Any]
"""What `glassformer evaluate --by-length --json` prints."""


@dataclass(frozen=True)
class Result:
    """What one arm came to."""

    values: dict[str, Any]
    """What is varied, and the value it has here."""
    seed: int
    metric: str
    """The recipe's training.metric, which the table compares."""
    test: Figures
    """On the test split, of the best checkpoint."""
    other_data: dict[str, Any]
    """The settings of --test; empty where there are none."""
    other: Figures | None
    """On the test split with those settings."""
    curve: list[tuple[int, float]]
    """The metric at each evaluation on the dev split, with its step."""
    parameters: int
    steps: int
    """Updates of the weights."""
    seconds: float
    """From the first step to the last; evaluations and checkpoints between them are in it."""
    data: str
    """Digest of the training ids: arms with equal ones saw the same data, in an order that hangs on the seed alone."""

    def steps_to_enough(self) -> int | None:
        """The step of the first evaluation at or above 99 %; none if there was none."""
        reached = [step for step, value in self.curve if value >= ENOUGH]
        return reached[0] if reached and self.metric in SHARES else None

    def as_json(self) -> str:
        """On one line."""
        return json.dumps(asdict(self), ensure_ascii=False)


def write_results(results: Sequence[Result], path: Path) -> None:
    """A line for each."""
    write_text_atomically(path, "".join(f"{each.as_json()}\n" for each in results))


def result_from(value: Any, place: str) -> Result:
    """The result that a value read from JSON stands for. Errors: `CheckpointError` naming the place."""
    match value:
        case {"values": dict(), "seed": int(), "metric": str(metric), "test": dict(test), "curve": list(curve)}:
            if value.keys() == Result.__dataclass_fields__.keys() and metric in test:
                whole: dict[str, Any] = {**value, "curve": [(step, figure) for step, figure in curve]}
                return Result(**whole)
        case _:
            pass
    raise CheckpointError(f"{place} is no result of an arm. Delete the file, and the arm is scored anew.")


def training_seconds(run: Path) -> float:
    """How long the steps of a run took, by its clock; one that was resumed counts from 0 again, so parts are summed."""
    lines = (run / "timing.jsonl").read_text("utf-8").splitlines()
    times = [float(json.loads(line)["seconds"]) for line in lines]
    ends = [before for before, after in pairwise(times) if after < before]
    return sum(ends) + times[-1]


def learning_curve(run: Path, metric: str) -> list[tuple[int, float]]:
    """(step, metric) of each evaluation on the dev split."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return [(line["step"], float(line[metric])) for line in lines if line["kind"] == "dev"]
