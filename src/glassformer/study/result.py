"""The result of a finished arm, from which table and plots are made: a line of results.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.base.errors import CheckpointError
from glassformer.store.files import write_text_atomically

SHARES = ("exact_match", "token_accuracy", "accuracy", "macro_f1")
"""Metrics from 0 to 1, for which it makes sense to ask when they reach 99 %."""
ENOUGH = 0.99

Figures = dict[str, Any]
"""What `glassformer evaluate --by-length --json` prints."""


@dataclass(frozen=True)
class Result:
    """The result of one arm."""

    values: dict[str, Any]
    """The varied settings and their values in this arm."""
    seed: int
    metric: str
    """The recipe's training.metric, which the table compares."""
    split: str
    """The split of `test`: "test", or "dev" if the data have no test split."""
    test: Figures
    """The best checkpoint on that split."""
    other_data: dict[str, Any]
    """The settings of --test; empty if there are none."""
    other: Figures | None
    """The best checkpoint on the held-out split of the data with those settings."""
    curve: list[tuple[int, float]]
    """(step, metric) of each evaluation on the dev split."""
    parameters: int
    steps: int
    """Updates of the weights."""
    seconds: float
    """From the first step to the last, including evaluations and checkpoints in between."""
    data: str
    """Digest of the training ids. Arms with equal digests saw the same data; only the seed decides the order."""

    def steps_to_enough(self) -> int | None:
        """Return the step of the first evaluation at or above 99 %, or None."""
        reached = [step for step, value in self.curve if value >= ENOUGH]
        return reached[0] if reached and self.metric in SHARES else None

    def as_json(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def splits(results: Sequence[Result]) -> str:
    """Return the name of the split that the results are of; several names if they differ."""
    return " or ".join(sorted({each.split for each in results}, reverse=True))


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write one line for each result."""
    write_text_atomically(path, "".join(f"{each.as_json()}\n" for each in results))


def result_from(value: Any, place: str, split: str | None = None) -> Result:
    """Make a result from a value read from JSON; `split` is what one has that was scored before results told it.

    Errors: `CheckpointError` naming `place`.
    """
    if isinstance(value, dict) and split is not None:
        value = {"split": split, **value}
    match value:
        case {
            "values": dict(),
            "seed": int(),
            "metric": str(metric),
            "split": str(),
            "test": dict(test),
            "curve": list(curve),
        }:
            if value.keys() == Result.__dataclass_fields__.keys() and metric in test:
                whole: dict[str, Any] = {**value, "curve": [(step, figure) for step, figure in curve]}
                return Result(**whole)
        case _:
            pass
    raise CheckpointError(
        f"{place} is not the result of a run of this study. Delete the file and repeat the study's command, which "
        "makes it again."
    )


def training_seconds(run: Path) -> float:
    """Return how long the steps of a run took. The clock restarts at 0 when a run is resumed, so parts are summed."""
    lines = (run / "timing.jsonl").read_text("utf-8").splitlines()
    times = [float(json.loads(line)["seconds"]) for line in lines]
    ends = [before for before, after in pairwise(times) if after < before]
    return sum(ends) + times[-1]


def learning_curve(run: Path, metric: str) -> list[tuple[int, float]]:
    """Return (step, metric) of each evaluation on the dev split."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return [(line["step"], float(line[metric])) for line in lines if line["kind"] == "dev"]
