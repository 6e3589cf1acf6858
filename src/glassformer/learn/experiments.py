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
from glassformer.learn.report import Verdict
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
    try:
        state, why = EXPERIMENTS[exercise.experiment](exercise, folder)
    except UnansweredError as found:
        state, why = found.args
    except (TypeError, ValueError):
        state, why = "fails", f'{ANSWERS}, ["{exercise.id}"]: a number is asked for where another thing stands'
    return Verdict(exercise.id, state, why)


class UnansweredError(Exception):
    """An experiment that cannot be judged: the state of the exercise, and why."""


def graduation(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether `--finish` was passed."""
    try:
        passed = bool(read_json(folder / GRADUATION)["passed"]) if (folder / GRADUATION).is_file() else None
    except (GlassformerError, KeyError, TypeError):
        passed = None
    if passed is None:
        return "not written", "`glassformer learn --finish` was not run here"
    return ("done", "") if passed else ("fails", "the last `--finish` did not pass, or was --quick")


def answers(exercise: Exercise, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the learner's answers to an exercise. Errors: `UnansweredError` if one of those asked for is missing."""
    path = folder / ANSWERS
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))[exercise.id] if path.is_file() else {}
    except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        why = f"{ANSWERS} cannot be read: {error}" if str(error) else f'{ANSWERS} has no ["{exercise.id}"]'
        raise UnansweredError("fails", why) from None
    if missing := [name for name in names if name not in given]:
        raise UnansweredError("not written", f'{ANSWERS}, ["{exercise.id}"]: {missing[0]} is missing')
    return given


def results_of(study: Path) -> list[Result]:
    """Return the results of a study. Errors: `UnansweredError` if there are none."""
    results = study / "results.jsonl"
    if not results.is_file():
        raise UnansweredError("fails", f"there is no {results}")
    from glassformer.study.result import result_from  # here: it imports torch

    try:
        lines = results.read_text("utf-8").splitlines()
        return [result_from(json.loads(line), str(results)) for line in lines if line.strip()]
    except (GlassformerError, ValueError) as error:
        raise UnansweredError("fails", str(error)) from None


def depth(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether the answers on depth are those of the learner's own study, computed from its results.jsonl again."""
    given = answers(exercise, folder, ("study", "first_to_99", "step_ratio", "parameters"))
    return compared(given, results_of(folder / str(given["study"])))


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
        reason = "the time is that of a run" if whole else "it is another share of the time of a step"
        return "fails", f"{reason}; a step of depth 4 takes {ratio:.2f} steps of depth 1 in this study"
    reached = {n: [row.steps_to_enough() for row in each] for n, each in by_depth.items()}
    means = {n: fmean(filter(None, steps)) for n, steps in reached.items() if all(steps)}
    first = min(means, key=lambda n: means[n], default=0)
    return ("done", "") if given["first_to_99"] == first else ("fails", "another depth reaches 99 % first")


def remedies(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether the answers on deep post-norm are those of the learner's own study of single changes."""
    given = answers(exercise, folder, ("study", "alone", "best"))
    shares: dict[str, list[float]] = defaultdict(list)
    for row in results_of(folder / str(given["study"])):
        shares[str(row.values.get("change"))].append(float(row.test[row.metric]))
    if "none" not in shares or len(shares) < 3:
        return "fails", "the study must have post-norm as it is (none), and at least two changes"
    if any(len(each) < SEEDS for each in shares.values()):
        return "fails", "too few seeds to say"
    means = {change: fmean(each) for change, each in shares.items()}
    if abs(float(given["alone"]) - means["none"]) > 0.005:
        percent = abs(float(given["alone"]) / 100 - means["none"]) <= 0.005
        return "fails", "the share is from 0 to 1, not a percentage" if percent else "post-norm alone has another share"
    top = max(means.values())
    best = [change for change, mean in means.items() if mean == top]
    return ("done", "") if given["best"] in best else ("fails", "another change has the highest share")


def captions(exercise: Exercise, folder: Path) -> tuple[str, str]:
    """Whether the answers on real data are those of the learner's own run, read from its metrics.jsonl again."""
    given = answers(exercise, folder, ("run", "bleu", "step", "fine"))
    metrics = folder / str(given["run"]) / "metrics.jsonl"
    if not metrics.is_file():
        return "fails", f"there is no {metrics}"
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
        scores = {int(row["step"]): float(row["bleu"]) for row in rows if row["kind"] == "dev"}
    except (ValueError, KeyError, TypeError):
        return "fails", f"{metrics} is no log of a run that is measured in BLEU"
    if not scores:
        return "fails", "the run has no evaluation yet"
    if given["fine"] not in range(11):
        return "fails", "fine is a number of translations, of ten"
    best = max(scores, key=lambda step: scores[step])
    if given["step"] != best:
        return "fails", "the last step is not the best" if given["step"] == max(scores) else "another step is the best"
    return ("done", "") if abs(float(given["bleu"]) - scores[best]) <= 0.05 else ("fails", "the best BLEU is another")


EXPERIMENTS = {"graduation": graduation, "depth": depth, "remedies": remedies, "captions": captions}
"""What decides each kind of experiment."""
