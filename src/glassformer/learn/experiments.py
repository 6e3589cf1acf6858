"""The exercises without code: what an experiment of the learner's own gave decides them. Imports no torch."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassformerError
from glassformer.learn.course import Exercise
from glassformer.learn.verdict import Verdict
from glassformer.store.files import read_json

if TYPE_CHECKING:
    from glassformer.study.result import Result

GRADUATION = Path("runs/mine/graduation.json")
"""What `--finish` writes, in the learner's folder."""
ANSWERS = "answers.toml"
SEEDS = 3
NEAR = 0.15
"""How far a measured answer may be off, as a share of the right one."""


def judged(exercise: Exercise, folder: Path) -> Verdict:
    """Return the verdict on an experiment, from the files in the learner's folder."""
    verdict, why = EXPERIMENTS[exercise.experiment](exercise, folder)
    return Verdict(exercise.id, verdict, why)


def graduation(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether `--finish` was passed."""
    try:
        passed = bool(read_json(folder / GRADUATION)["passed"]) if (folder / GRADUATION).is_file() else None
    except (GlassformerError, KeyError, TypeError):
        passed = None
    if passed is None:
        return "not written", "`glassformer learn --finish` was not run here"
    return ("done", "") if passed else ("fails", "the last `--finish` did not pass, or was --quick")


def depth(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether the answers on depth are those of the learner's own study, computed from its results.jsonl again."""
    path = folder / ANSWERS
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))[exercise.id] if path.is_file() else {}
    except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        return "fails", f"{ANSWERS} cannot be read: {error}" if str(error) else f'{ANSWERS} has no ["{exercise.id}"]'
    missing = [name for name in ("study", "first_to_99", "step_ratio", "parameters") if name not in given]
    if missing:
        return "not written", f'{ANSWERS}, ["{exercise.id}"]: {missing[0]} is missing'
    results = folder / str(given["study"]) / "results.jsonl"
    if not results.is_file():
        return "fails", f"there is no {results}"
    from glassformer.study.result import result_from  # here: it imports torch

    try:
        lines = results.read_text("utf-8").splitlines()
        rows = [result_from(json.loads(line), str(results)) for line in lines if line.strip()]
    except (GlassformerError, ValueError) as error:
        return "fails", str(error)
    return compared(given, rows)


def compared(given: dict[str, Any], rows: Sequence[Result]) -> tuple[str, str]:
    """Compare the answers with the results of a study over model.n_layers."""
    by_depth: dict[int, list[Result]] = defaultdict(list)
    for row in rows:
        if "model.n_layers" in row.values:
            by_depth[int(row.values["model.n_layers"])].append(row)
    if not {1, 4} <= {*by_depth}:
        return "fails", "the study has no finished runs with 1 and 4 layers"
    if any(len(each) < SEEDS for each in by_depth.values()):
        return "fails", "too few seeds to say"
    parameters = by_depth[4][0].parameters
    if given["parameters"] != parameters:
        half = abs(given["parameters"] - parameters / 2) < 0.1 * parameters
        return "fails", "the second stack is not counted" if half else "the number of parameters is another"

    def step(n: int) -> float:
        return fmean(row.seconds / row.steps for row in by_depth[n])

    ratio = step(4) / step(1)
    if abs(given["step_ratio"] - ratio) > NEAR * ratio:
        run = fmean(row.seconds for row in by_depth[4]) / fmean(row.seconds for row in by_depth[1])
        whole = abs(run - ratio) > NEAR * ratio and abs(given["step_ratio"] - run) <= NEAR * run
        told = "the time is that of a run" if whole else "it is another share of the time of a step"
        return "fails", f"{told}; a step of depth 4 takes {ratio:.2f} steps of depth 1 in this study"
    reached = {n: [row.steps_to_enough() for row in each] for n, each in by_depth.items()}
    means = {n: fmean(filter(None, steps)) for n, steps in reached.items() if all(steps)}
    first = min(means, key=lambda n: means[n], default=0)
    return ("done", "") if given["first_to_99"] == first else ("fails", "another depth reaches 99 % first")


EXPERIMENTS = {"graduation": graduation, "depth": depth}
"""What decides each kind of experiment."""
