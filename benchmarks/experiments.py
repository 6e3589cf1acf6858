"""Run one row of the table of expected results for one seed, by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from files import FILES
from rows import ROWS, Experiment

from glassformer.cli.arguments import read_arguments
from glassformer.cli.verbs import VERBS
from glassformer.study.result import spread, training_seconds
from glassformer.train.recipe import anchored, dumps_recipe, load_recipe, override


class Result(NamedTuple):
    """The figures of one run."""

    experiment: str
    seed: int
    metrics: dict[str, float | int | str]
    seconds: float
    """Training time; for an ensemble, the sum over its members."""
    train: list[str]
    """The training command without the run folder; for an ensemble, that of its first member."""


class Failure(NamedTuple):
    """A run without figures, and the reason."""

    experiment: str
    seed: int
    reason: str
    skipped: bool = False
    """Whether it was not even tried."""


def run_experiment(
    experiment: Experiment, seed: int, runs: Path, data: str | None, settings: Sequence[str]
) -> Result | Failure:
    """Train and score, unless that is done already. Errors: those of the command line's own reader of settings."""
    if experiment.members > 1:
        return run_ensemble(experiment, seed, runs, data, settings)
    try:
        files = files_of(experiment, runs, data)
    except FileNotFoundError as missing:
        return Failure(experiment.name, seed, str(missing), skipped=True)
    train = [*experiment.settings, *files, *settings, f"--training.seed={seed}"]
    run, done = folder_of(experiment, seed, runs)
    before = ""
    if experiment.after is not None:
        first = ROWS[experiment.after]
        if isinstance(found := run_experiment(first, seed, runs, data, settings), Failure):
            return found._replace(experiment=experiment.name, reason=f"{first.name} comes before it: {found.reason}")
        run_before, done_before = folder_of(first, seed, runs)
        before = json.loads(done_before.read_text("utf-8"))["recipe"]
        train.append(f"--training.start-from={run_before}")
    recipe = wanted(experiment.recipe, train) + before
    if done.exists() and (record := json.loads(done.read_text("utf-8")))["recipe"] == recipe:
        return Result(**record["result"])
    if problem := train_run(experiment.recipe, train, run, recipe):
        return Failure(experiment.name, seed, problem)
    code, out, problem = glassformer("evaluate", str(run), "--json")
    if code:
        return Failure(experiment.name, seed, problem)
    result = Result(experiment.name, seed, json.loads(out), training_seconds(run), [experiment.recipe, *train])
    done.write_text(json.dumps({"recipe": recipe, "result": result._asdict()}, indent=2) + "\n", "utf-8")
    return result


def run_ensemble(
    experiment: Experiment, seed: int, runs: Path, data: str | None, settings: Sequence[str]
) -> Result | Failure:
    """Train and score each member alone, unless that is done already; then score all of them together."""
    alone = replace(experiment, members=1)
    members: list[Result] = []
    for each in seeds_of(experiment, seed):
        if isinstance(found := run_experiment(alone, each, runs, data, settings), Failure):
            return found._replace(seed=seed, reason=found.reason if found.skipped else f"seed {each}: {found.reason}")
        members.append(found)
    mean = spread([each.metrics[experiment.metric] * experiment.scale for each in members], 2, experiment.unit)
    print(f"{mean} alone; together ", end="", file=sys.stderr, flush=True)
    folders = [str(folder_of(alone, each.seed, runs)[0]) for each in members]
    code, out, problem = glassformer("evaluate", *folders, "--json")
    if code:
        return Failure(experiment.name, seed, problem)
    return Result(experiment.name, seed, json.loads(out), sum(each.seconds for each in members), members[0].train)


def seeds_of(experiment: Experiment, seed: int) -> range:
    """Return the training seeds of an ensemble's members. They are distinct across `seed`s, for up to 100 members."""
    return range(100 * seed + 1, 100 * seed + 1 + experiment.members)


def folder_of(experiment: Experiment, seed: int, runs: Path) -> tuple[Path, Path]:
    """Return the folder of a run, and the file of its figures."""
    run = runs / f"{experiment.name.replace(' ', '-')}-seed-{seed}"
    return run, run.with_name(run.name + ".json")


def train_run(recipe: str, settings: Sequence[str], run: Path, wanted: str) -> str | None:
    """Train, or resume a killed run of the same recipe. Return the error, if there was one."""
    begun = run.with_name(run.name + ".begun")
    if begun.exists() and begun.read_text("utf-8") == wanted and any(run.glob("checkpoints/step-*")):
        code, _, problem = glassformer("resume", str(run))
    else:
        run.parent.mkdir(parents=True, exist_ok=True)
        begun.write_text(wanted, "utf-8")
        code, _, problem = glassformer("train", recipe, "--out", str(run), "--overwrite", *settings)
    return problem if code else None


def wanted(recipe: str, settings: Sequence[str]) -> str:
    """Return the resolved recipe that `glassformer train` makes of these settings. Runs with another one are stale."""
    changes = read_arguments("train", VERBS["train"], [recipe, *settings]).changes
    return dumps_recipe(anchored(override(load_recipe(recipe), changes)))


def glassformer(*words: str) -> tuple[int, str, str]:
    """Run the command line, and return its exit code, its output and its last error line."""
    ended = subprocess.run([sys.executable, "-m", "glassformer", *words], capture_output=True, text=True)
    complaint = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "no reason given")
    return ended.returncode, ended.stdout, f"exit code {ended.returncode}: {complaint}"


def files_of(experiment: Experiment, runs: Path, data: str | None) -> list[str]:
    """Return the settings that name its files, none if the task makes its own data. Errors: `FileNotFoundError`."""
    if experiment.data is None:
        return []
    folder, files = FILES[experiment.data]
    if data is None:
        raise FileNotFoundError(f"it needs files; give --data, a folder that holds {folder}/")
    return files(Path(data) / folder, runs / "files" / experiment.data.replace(" ", "-"))
