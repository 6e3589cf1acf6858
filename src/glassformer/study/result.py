"""What a study found: its folder, the score and result of each arm, and the table made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from glassformer.base.errors import CheckpointError
from glassformer.store.files import read_json, write_text_atomically
from glassformer.store.folders import newest, read_state
from glassformer.study.grid import Arm, combination, shown
from glassformer.train.finished.use import evaluate, parameters
from glassformer.train.recipe import Recipe, anchored, load_recipe, override
from glassformer.train.run.resumable import flat
from glassformer.train.tasks import METRICS, task_of

# The folder of a study: where its arms are, how far each has come, and whether an arm fits the recipe asked for.

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


# Scoring a finished arm, in its own process: on its held-out split, and on the other data that the study asks for.


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


# The result of a finished arm, from which table and plots are made: a line of results.jsonl.

SHARES = tuple(name for name, each in METRICS.items() if each.share)
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


# The table of a study: for each combination, the mean over its seeds with the lowest and the highest.

NONE = "-"


def table(results: Sequence[Result], combinations: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a markdown table with a row for each combination, and notes on the seeds and samples.

    `combinations`: those that were asked for, so that one without any result gets a row too. Combinations that only
    `results` has follow them.
    """
    if not results:
        return "No arm is finished."
    wanted = {combination(each): each for each in (*combinations, *(result.values for result in results))}
    first = results[0]
    share = first.metric in SHARES
    head = [*short_names(first.values), first.metric]
    head += [f"{first.metric}, {short_combination(first.other_data)}"] if first.other_data else []
    head += [*(["steps to 99 %"] if share else []), "parameters", "seconds"]
    body: list[list[str]] = []
    for name, values in wanted.items():
        mine = [each for each in results if combination(each.values) == name]
        cells = [figure([each.test for each in mine], first.metric)]
        cells += [figure([each.other or {} for each in mine], first.metric)] if first.other_data else []
        cells += [steps_to_enough(mine)] if share else []
        cells += [parameters_of(mine), spread([each.seconds for each in mine], 0)]
        body.append([*map(shown, values.values()), *cells])
    return "\n".join([markdown(head, body), "", *notes(results)])


def notes(results: Sequence[Result]) -> list[str]:
    """Return notes that say what the figures are means of."""
    seeds = ", ".join(str(each) for each in sorted({each.seed for each in results}))
    pairs = " or ".join(f"{each:,}" for each in sorted({int(each.test["n"]) for each in results}))
    lines = [f"Mean (lowest–highest) of seeds {seeds}; {pairs} {splits(results)} samples each."]
    others = " or ".join(f"{each:,}" for each in sorted({int(each.other["n"]) for each in results if each.other}))
    if others not in ("", pairs):
        lines.append(f"Of {short_combination(results[0].other_data)}: {others} samples each.")
    if results[0].metric in SHARES:
        lines.append(f"Steps to 99 %: the first evaluation on dev at or above it{every(results)}; - where none was.")
    return lines


def every(results: Sequence[Result]) -> str:
    """Say how many steps apart evaluations are, if that is the same for all results."""
    gaps = {each.curve[0][0] for each in results if len(each.curve) > 1}
    return f", one every {gaps.pop()} steps" if len(gaps) == 1 else ""


def figure(figures: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return one metric over the seeds; shares in percent."""
    values = [float(each[metric]) for each in figures if metric in each]
    if metric in SHARES:
        return spread([100.0 * each for each in values], 2, " %")
    return spread(values, 4 if metric == "loss" else 2)


def steps_to_enough(results: Sequence[Result]) -> str:
    """Return the steps to 99 % over the seeds that reached it, and how many did if not all."""
    reached = [float(step) for step in (each.steps_to_enough() for each in results) if step is not None]
    some = f", {len(reached)} of {len(results)}" if 0 < len(reached) < len(results) else ""
    return spread(reached, 0) + some


def parameters_of(results: Sequence[Result]) -> str:
    """Return the model's number of parameters; several numbers if seeds differ."""
    return " or ".join(f"{each:,}" for each in sorted({result.parameters for result in results})) or NONE


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Return mean, lowest and highest as text; for a single value, only the value."""
    if not values:
        return NONE
    low, mean, high = (f"{each:.{digits}f}" for each in (min(values), fmean(values), max(values)))
    return f"{mean}{unit} ({low}–{high})" if len(values) > 1 else f"{mean}{unit}"


def short_names(values: Mapping[str, Any]) -> list[str]:
    """Return the settings' names without their sections where that is unambiguous."""
    ends = [name.rpartition(".")[2] for name in values]
    return [end if ends.count(end) == 1 else name for name, end in zip(values, ends, strict=True)]


def short_combination(values: Mapping[str, Any]) -> str:
    """Return settings and values as text, without sections."""
    return combination(dict(zip(short_names(values), values.values(), strict=True)))


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a markdown table whose columns are also aligned on a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    ruler = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, ruler, *body)
    )
