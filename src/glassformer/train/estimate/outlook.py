"""Estimate what a run will need, before it starts: parameters, memory, disk, time and data.

Nothing is written except the tokens of a text, which the run then finds.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.base.runtime import choose_device, choose_threads, threads_kept
from glassformer.nn.count import count_parameters
from glassformer.nn.stack import recompute
from glassformer.train.estimate.memory import Memory, estimate, heap_notes, kept_beside
from glassformer.train.loop import StepReport, train_steps
from glassformer.train.optim.schedule import Schedule
from glassformer.train.precision import choose_precision
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import begin
from glassformer.train.run.build import Speed, objective_of, optimizer_of, plain
from glassformer.train.run.chosen import chosen
from glassformer.train.sources.run_data import Summary

FIRST, TIMED = 2, 6
"""Steps that are not timed, because they include set-up, and steps that are."""
ENOUGH = 30.0
"""Seconds after which no further step is timed."""


@dataclass(frozen=True)
class Disk:
    """Bytes on disk."""

    checkpoint: int
    """One checkpoint: weights, optimizer, and the state of the weights' average."""
    kept: int
    """The most, while the last one is written: the newest, the best, and the one being written."""
    free: int
    """Free bytes where the run's folder will be."""


@dataclass(frozen=True)
class Pace:
    """The time of real steps here, and so of the whole run, without scoring and saving."""

    steps: int
    """How many steps were timed."""
    step_seconds: float
    """For a batch of mean size."""
    tokens_per_second: float
    run_seconds: float


@dataclass(frozen=True)
class Outlook:
    """What a run will need."""

    notes: list[str]
    """What was chosen: device, arithmetic, backend."""
    parameters: int
    memory: Memory
    """For the largest batch of the first epoch."""
    heap: list[str]
    """What the process may hold beside its tensors, in words; empty if that is next to nothing."""
    disk: Disk
    pace: Pace
    data: Summary
    written: list[str]
    """Folders of token files that were made for this, and are kept."""

    def to_dict(self) -> dict[str, object]:
        """Plain values, for `--json`."""
        return {**asdict(self), "memory": self.memory.to_dict()}


@threads_kept()
def look_ahead(recipe: Recipe, out: Path, speed: Speed = plain) -> Outlook:
    """Estimate what a run of the recipe in the folder `out` will need. Errors: those of reading data and recipe.

    Makes a few real updates, with the run's own settings and on its first batches after a warm-up of batch or length,
    and throws them away; the optimizer then has its state, which is measured. The rest of the memory is estimated, see
    `train.estimate.memory`.
    """
    device, why = choose_device(recipe.training.device)
    _, threads = choose_threads(recipe.training.threads)
    prepared, model, began, _ = begin(recipe)
    recipe, model = prepared.recipe, model.to(device)
    training, warm = recipe.training, recipe.training.growth.steps  # batches after the warm-up have their full size
    off = speed(model).notes
    firsts = (batch.split(training.accumulate)[0] for _, batch in prepared.batches(warm))
    with recompute(model, training.recompute):
        precision, arithmetic = choose_precision(training.precision, model, firsts)
    optimizer = optimizer_of(model, replace(recipe, training=replace(training, precision=precision)))
    speed(model, optimizer)
    settings: dict[str, Any] = {
        "accumulate": training.accumulate,
        "precision": precision,
        "recompute": training.recompute,
    }
    steps = train_steps(
        model,
        (batch for _, batch in prepared.batches(warm)),
        optimizer,
        Schedule("constant", training.learning_rate, FIRST + TIMED),
        objective=objective_of(model, recipe),
        seed=training.seed,
        clip=training.clip,
        **settings,
    )
    data = prepared.summary()
    pace = paced(steps, data)
    objective = objective_of(model, recipe)
    memory = max(
        (
            estimate(model, batch, objective, optimizer, **settings, **kept_beside(recipe))
            for batch in prepared.largest()
        ),
        key=lambda each: each.peak,
    )
    _, parameters = count_parameters(model)
    notes = [f"device: {why}; {threads}", f"arithmetic: {arithmetic}", *off, *began, *chosen(model, prepared)]
    written = [str(folder) for folder in prepared.written()]
    return Outlook(notes, parameters, memory, heap_notes(device), disk_of(recipe, memory, out), pace, data, written)


def paced(steps: Iterator[StepReport], data: Summary) -> Pace:
    """Estimate the run's pace from its first steps, for batches of mean size: time grows with tokens."""
    reports: list[StepReport] = []
    began = time.perf_counter()
    for report in steps:
        reports.append(report)
        if report.number > FIRST and time.perf_counter() - began > ENOUGH:
            break
    timed = reports[FIRST:]
    rate = statistics.median(each.tokens / max(each.seconds, 1e-9) for each in timed)
    seconds = data.tokens / data.batches / rate
    return Pace(len(timed), seconds, rate, data.tokens * data.epochs / rate)


def disk_of(recipe: Recipe, memory: Memory, out: Path) -> Disk:
    """The bytes of checkpoints (those kept, the best, and the one being written), and the free bytes."""
    checkpoint = memory.weights + memory.optimizer + memory.average
    made = recipe.training.steps // recipe.checkpoint.every + 1 if recipe.checkpoint.every else 1
    at_once = min(recipe.checkpoint.keep + 2, made + 1)
    place = next(each for each in (out.absolute(), *out.absolute().parents) if each.is_dir())
    return Disk(checkpoint, checkpoint * at_once, shutil.disk_usage(place).free)
