"""`glassformer ablate RECIPE --vary SETTING=VALUES`: compare variants of a recipe over several seeds."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.base.processors import free_processors
from glassformer.cli.arguments import (
    Arguments,
    converted,
    kind_of,
    named_recipe,
    refuse_not_taken,
    whole_number,
)
from glassformer.cli.evaluate import refuse_other_splits
from glassformer.cli.follow import Signals
from glassformer.cli.runs import RUNS, check_place, run_folder
from glassformer.cli.verbs import SECTIONS
from glassformer.data.config import SPLITS
from glassformer.data.dataset import refuse_missing_files
from glassformer.store.files import write_text_atomically
from glassformer.study.plot import draw
from glassformer.study.pool import Begun, Ended, Pool, Task, Wrote, with_threads
from glassformer.study.result import LOGS, Arm, Result, StudyFolder, arms, figure, single_changes, table, write_results
from glassformer.train.finished.loading import refuse_unscorable
from glassformer.train.recipe import dumps_recipe, override
from glassformer.train.records import duration

FAILED = 1
MOST_SEEDS = 1000


class Study(NamedTuple):
    """The command line of a study, parsed and checked."""

    arms: list[Arm]
    other_data: dict[str, object]
    folder: StudyFolder
    jobs: int
    """How many arms run at a time."""


def run(arguments: Arguments) -> int:
    """Train and score every arm that is not finished, then print the table."""
    study = read_study(arguments)
    states = {arm.label: study.folder.state(arm, study.other_data) for arm in study.arms}
    todo = [arm for arm in study.arms if states[arm.label] != "finished"]
    for data in {override(arm.recipe, changes).data: None for arm in todo for changes in ({}, study.other_data)}:
        refuse_missing_files(data, SPLITS)
        # each run reads its own data
        for path in [path for split in SPLITS for path in data.named_files(split)]:
            if not Path(path).is_file():
                raise ConfigError(
                    f"Each run of a study reads the data again in its own process; {path} is a pipe or a device, "
                    "which can be read only once. Write its content to a file, and give that file."
                )
    if "dry-run" in arguments.options:
        for arm in study.arms:
            print(f"{states[arm.label]:8}  {arm.label}  {study.folder.run(arm)}")
        return 0
    from glassformer.study.result import on_accelerator, refuse_impossible_models  # importing torch takes a second

    refuse_impossible_models(study.arms)
    try:
        (study.folder.root / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{study.folder.root} cannot be created: {error.strerror}. Choose another with --out."
        ) from None
    if "jobs" not in arguments.options and on_accelerator(study.arms):
        study = study._replace(jobs=1)
    begin(study, todo)
    stopped, failures = train_all(study, todo)
    if stopped:
        print("Stopped. Type the same command to continue.", file=sys.stderr)
        return 128 + stopped
    finish(study)
    for label, reason in failures.items():
        print(f"failed: {label}: {reason}", file=sys.stderr)
    return FAILED if failures else 0


def read_study(arguments: Arguments) -> Study:
    """Read the grid, the other test data, the folder and the number of jobs.

    Errors: `ConfigError`, before any training.
    """
    recipe = named_recipe(str(arguments.target), arguments.options)
    axes: dict[str, list[object]] = {}
    for text in arguments.lists.get("vary", []):
        place, values = read_values("vary", text, SECTIONS)
        if place in axes:
            raise ConfigError(f"--vary {place} is given twice. Give all its values in one: --vary {place}=V1,V2.")
        axes[place] = values
    other: dict[str, object] = {}
    for text in arguments.lists.get("test", []):
        place, values = read_values("test", text, ("data", "decode"))
        if len(values) > 1:
            raise ConfigError(f"--test takes one value for a setting; got {text!r}. Give only one.")
        if place in other:
            raise ConfigError(f"--test {place} is given twice. Give it once.")
        other[place] = values[0]
    seeds = whole_number("seeds", arguments.options.get("seeds", "3"), MOST_SEEDS)
    apart = [read_change(text) for text in arguments.lists.get("change", [])]
    if axes and apart:
        raise ConfigError("--vary makes a grid, --change a run for each change by itself. Give only one of the two.")
    found = (
        single_changes(recipe, arguments.changes, apart, seeds)
        if apart
        else arms(recipe, arguments.changes, axes, seeds)
    )
    refuse_other_splits("test", other)
    for arm in found if other else []:  # data that contradict each other or the model are refused now
        refuse_unscorable(arm.recipe.data, override(arm.recipe, other).data)
    threads = max(max(arm.recipe.training.threads, arm.recipe.decode.threads) for arm in found)
    out = run_folder(arguments.options.get("out"), RUNS / f"ablate-{recipe.name}")
    check_place(out)
    refuse_foreign(out)
    requested = {*arguments.changes, *axes, *(name for each in apart for name in each)}
    for arm in found:
        refuse_not_taken(arm.recipe, arguments.options, requested)
    return Study(found, other, StudyFolder(out), jobs(arguments.options.get("jobs"), threads))


def refuse_foreign(out: Path) -> None:
    """Refuse an existing path that is not a study folder, unless it is an empty folder. Errors: `CheckpointError`."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / LOGS).is_dir() or (out / "recipe.toml").exists():
        raise CheckpointError(f"{out} exists and is not the folder of a study. Choose another with --out.")


def jobs(requested: str | None, threads: int) -> int:
    """Return how many arms to run at a time, so that their threads do not outnumber the free processors."""
    processors = free_processors()
    if requested is None:
        return max(processors // threads, 1)
    number = whole_number("jobs", requested, 4096)
    if number > 1 and number * threads > processors:
        raise ConfigError(
            f"--jobs {number} with {threads} thread(s) each needs {number * threads} processors; {processors} are "
            f"free. Use --jobs {max(processors // threads, 1)}, or fewer training.threads and decode.threads."
        )
    return number


def begin(study: Study, todo: Sequence[Arm]) -> None:
    """Print how many runs follow, where, how many at a time and with which arithmetic."""
    done = len(study.arms) - len(todo)
    training = study.arms[0].recipe.training
    finished = f"; {done} are finished already" if done else ""
    print(
        f"{len(study.arms)} runs in {study.folder.root}, {study.jobs} at a time{finished}. "
        f"Arithmetic {training.precision}, {training.threads} thread(s) a run.",
        file=sys.stderr,
    )


def train_all(study: Study, todo: Sequence[Arm]) -> tuple[int, dict[str, str]]:
    """Run the arms. Return the number of the signal that stopped them (0 if none did) and the failures by arm label."""
    pool = Pool([task(study, arm) for arm in todo], study.jobs)
    progress = Progress(study, todo)
    with Signals() as signals, closing(pool.run()) as events:
        signals.run = pool
        for event in events:
            progress(event, stopping=pool.stopping)
    return signals.number or 0, progress.failures


def task(study: Study, arm: Arm) -> Task:
    """Return the process that runs an arm: `cli/arm.py`, with as many threads as the arm's recipe says."""
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    message = {
        "recipe": dumps_recipe(arm.recipe),
        "values": arm.values,
        "run": str(study.folder.run(arm)),
        "scores": str(study.folder.scores(arm)),
        "other_data": study.other_data,
    }
    return Task(
        arm.label,
        [sys.executable, "-P", "-m", "glassformer.cli.arm"],
        json.dumps(message),
        study.folder.log(arm),
        with_threads({**os.environ, "PYTHONPATH": path}, arm.recipe.training.threads),
    )


class Progress:
    """Prints progress: a line when an arm begins, at each quarter of its steps, and when it ends."""

    def __init__(self, study: Study, todo: Sequence[Arm]) -> None:
        self.study = study
        self.arms = {arm.label: arm for arm in todo}
        self.quarters: dict[str, int] = {}
        self.ended = 0
        self.began = time.perf_counter()
        self.failures: dict[str, str] = {}

    def __call__(self, event: Begun | Wrote | Ended, stopping: bool) -> None:
        """Print what there is to say about one event."""
        label = event.task.name
        match event:
            case Begun():
                self.say(label, "begins")
            case Wrote(line=line):
                record = json.loads(line)
                quarter = 4 * record["step"] // record["steps"]
                if quarter != self.quarters.get(label, 0):
                    self.quarters[label] = quarter
                    self.say(
                        label, f"step {record['step']}/{record['steps']}, {record['metric']} {record['value']:.4f}"
                    )
            case Ended(code=0):
                self.ended += 1
                self.say(label, f"done, {self.score(label)}; {self.left()}")
            case Ended(task=task, code=code):
                if stopping:
                    self.say(label, "stopped")
                    return
                self.ended += 1
                lines = [line for line in task.log.read_text("utf-8", "replace").splitlines() if line.strip()]
                message = lines[-1].removeprefix("glassformer: ") if lines else "it printed nothing"
                self.failures[label] = f"exit code {code}: {message} (full log: {shlex.quote(str(task.log))})"
                self.say(label, f"FAILED: {self.failures[label]}")

    def say(self, label: str, what: str) -> None:
        """Print one line, prefixed with the number of arms that have ended."""
        print(f"[{self.ended}/{len(self.arms)}] {label}: {what}", file=sys.stderr, flush=True)

    def score(self, label: str) -> str:
        """Return the metric and the training time of a finished arm as text."""
        result = self.study.folder.result(self.arms[label], self.study.other_data)
        assert result is not None, "an arm that ends well leaves its figures"
        return f"{result.metric} {figure([result.test], result.metric)}, {result.seconds:.0f} s of training"

    def left(self) -> str:
        """Return the remaining time as text, estimated from the arms that have ended."""
        rest = (time.perf_counter() - self.began) / self.ended * (len(self.arms) - self.ended)
        return f"about {duration(rest)} left" if rest else "that was the last"


def finish(study: Study) -> None:
    """Write results.jsonl, table.md and the pictures; print the table."""
    found = [study.folder.result(arm, study.other_data) for arm in study.arms]
    results: list[Result] = [each for each in found if each is not None]
    text = table(results, [arm.values for arm in study.arms])
    root = study.folder.root
    write_results(results, root / "results.jsonl")
    write_text_atomically(root / "table.md", text + "\n")
    print(text)
    if results:
        try:
            files = draw(results, root)
            print(f"Pictures: {', '.join(map(str, files))}", file=sys.stderr)
        except ConfigError as error:
            print(f"No pictures: {error}", file=sys.stderr)
    print(f"Figures of each run: {root / 'results.jsonl'}", file=sys.stderr)


# Reads what differs between the runs of a study: the values of --vary and of --test, the settings of --change.


def read_values(flag: str, text: str, sections: tuple[str, ...]) -> tuple[str, list[object]]:
    """Split SETTING=V1,V2 into the setting and its typed values. Errors: `ConfigError` with the nearest setting."""
    name, equals, behind = text.partition("=")
    dot = "." in name
    texts = behind.split(",")
    if equals and dot and not all(texts):
        raise ConfigError(
            f"--{flag} {name} needs a value after = and between commas; got {text!r}. Add the missing value."
        )
    if not (equals and dot):
        raise ConfigError(f"--{flag} takes SECTION.SETTING=VALUE, as in --{flag} data.max_length=32; got {text!r}.")
    try:
        place, kind = varied(name, sections)
        return place, [converted(place, kind, each) for each in texts]
    except ConfigError as error:
        raise ConfigError(f"--{flag} {text}: {error}") from None


def varied(name: str, sections: tuple[str, ...]) -> tuple[str, Any]:
    """Return the setting that is meant, and its type. Errors: `ConfigError`, also for `no_key`, which has no value."""
    section, _, key = name.removeprefix("--").replace("-", "_").partition(".")
    place, kind, on = kind_of(section, key, sections)
    if not on:
        raise ConfigError(f"A switch takes true or false. Write {place}=false.")
    return place, kind


def read_change(text: str) -> dict[str, object]:
    """Split SETTING=VALUE,SETTING=VALUE into typed settings. A comma that no setting follows is part of the value."""
    found: dict[str, object] = {}
    for part in re.split(r",(?=[\w-]+\.[\w-]+=)", text):
        name, equals, value = part.partition("=")
        if not (equals and "." in name and value):
            raise ConfigError(
                f"--change takes SECTION.SETTING=VALUE, and others after commas, as in --change model.norm=rms; got "
                f"{text!r}."
            )
        try:
            place, kind = varied(name, SECTIONS)
            if place in found:
                raise ConfigError(f"{place} is given twice. Give it once.")
            found[place] = converted(place, kind, value)
        except ConfigError as error:
            raise ConfigError(f"--change {text}: {error}") from None
    return found
