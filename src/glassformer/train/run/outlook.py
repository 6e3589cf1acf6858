"""What a user is shown before a run starts: what was chosen for it, and what it will need."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.base.runtime import choose_device, choose_threads, threads_kept
from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.nn.count import count_parameters
from glassformer.nn.flex import obstacle
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.rules import RULES
from glassformer.nn.stack import recompute
from glassformer.nn.transformer import Transformer
from glassformer.train.loop import StepReport, train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from glassformer.train.precision import choose_precision
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import Speed, begin, broken_notes, objective_of, optimizer_of, plain
from glassformer.train.run.memory import Memory, estimate, heap_notes, kept_beside
from glassformer.train.run_data import RunData, Summary
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Settings, TrainingConfig


def chosen(model: Transformer, prepared: RunData) -> list[str]:
    """The lines that every start of a run shows."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    recipe = prepared.recipe
    return [*lines, *other_size(recipe.tokenizer, prepared), *rising(recipe.training), *broken_notes(recipe)]


def other_size(asked: TokenizerConfig, prepared: RunData) -> list[str]:
    """A line for each vocabulary that comes from a file, or has another size than was asked for."""
    if prepared.recipe.training.start_from is not None:  # a vocabulary that was there before
        return []
    kinds, usual = {"source": asked.source_kind or asked.kind, "target": asked.kind}, TokenizerConfig.vocab_size
    sizes = {side: getattr(prepared.tokenizers, side).vocab_size for side in kinds}
    learning = [name for name, made in TOKENIZERS.items() if made.least_vocab_size]
    said: list[str] = []
    for side, file in kinds.items():
        if names_file(file):
            lacking = len(getattr(getattr(prepared.tokenizers, side), "lacking", ()))
            lacks = f"; it lacks {lacking} bytes of UTF-8, which become <unk>" if lacking else ""
            said.append(f"{sizes[side]:,} tokens, of {file}{lacks}")
    for side, kind in kinds.items():
        if kind in learning and sizes[side] < asked.vocab_size:
            said.append(f"{sizes[side]:,} of the {asked.vocab_size:,} tokens asked for: the text gives no more")
    if asked.vocab_size != usual and not {*learning} & {*kinds.values()}:
        of = "the file's" if any(map(names_file, kinds.values())) else "the text's"
        learned = ", ".join(learning)
        said.append(f"all of {of}, as tokenizer.vocab_size ({asked.vocab_size:,}) is for kinds that learn: {learned}")
    return [f"vocabulary: {each}" for each in dict.fromkeys(said)]


def rising(training: TrainingConfig) -> list[str]:
    """A line for a warm-up that leaves the schedule no step: a trial of a few steps, or a mistake."""
    if training.warmup < training.steps:
        return []
    last = training.rates(training.steps)
    return [
        f"warm-up: {training.warmup:,} steps, of a run of {training.steps:,}: the learning rate never decays, and "
        f"reaches {last:.2g} of {training.learning_rate:.2g}"
    ]


def attention(model: Transformer, prepared: RunData) -> str:
    """The attention backend: as asked, or what computes the longest and the shortest training sample.

    Found by one forward pass of each alone, so it costs less than a step. Weights, mode and random state do not change.
    """
    asked = model.config.stack.attention
    if asked != "auto":
        return f"{asked}, as asked"
    picked: dict[str, str] = {}
    """For each name, the first reason to pick it."""
    rule, known = model.config.stack.attention_rule, prepared.recipe.training.precision != "float16"
    pick = RULES[rule].pick

    def note(call: Attended) -> None:
        q, chance = call.q, call.attention.dropout  # the dropout of training, because that is what is examined
        fast = getattr(call.attention, "backend", None)  # of a faster equal, which trains otherwise
        if known and fast is not None and (found := fast(q, call.k, call.v, call.mask)):
            picked.setdefault(*found)
            return
        flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=chance) is None
        name, why = pick(q.device.type, q.shape[-2], call.k.shape[-2], call.mask, flexible=flexible, dropout=chance)
        picked.setdefault(name, why)

    device, training = next(model.parameters()).device, model.training
    with watch_attention(model, note):
        for batch in prepared.extremes():
            loss_of(model.eval(), batch.to(device), objective_for(model))
    model.train(training)
    return "; ".join(f"{name} ({why})" for name, why in picked.items())


# What it will need: parameters, memory, disk, time and data.

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
    `train.run.memory`.
    """
    device, why = choose_device(recipe.training.device)
    _, threads = choose_threads(recipe.training.threads)
    prepared, model, began, _ = begin(recipe)
    decided, model = prepared.recipe, model.to(device)
    training, warm = decided.training, decided.training.growth.steps  # batches after the warm-up have their full size
    off = speed(model).notes
    firsts = (batch.split(training.accumulate)[0] for _, batch in prepared.batches(warm))
    with recompute(model, training.recompute):
        precision, arithmetic = choose_precision(training.precision, model, firsts)
    optimizer = optimizer_of(model, replace(decided, training=replace(training, precision=precision)))
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
        objective=objective_of(model, decided),
        seed=training.seed,
        clip=training.clip,
        **settings,
    )
    data = prepared.summary()
    pace = paced(steps, data)
    objective = objective_of(model, decided)
    memory = max(
        (
            estimate(model, batch, objective, optimizer, **settings, **kept_beside(decided))
            for batch in prepared.largest()
        ),
        key=lambda each: each.peak,
    )
    _, parameters = count_parameters(model)
    notes = [f"device: {why}; {threads}", f"arithmetic: {arithmetic}", *off, *began, *chosen(model, prepared)]
    written = [str(folder) for folder in prepared.written()]
    return Outlook(notes, parameters, memory, heap_notes(device), disk_of(decided, memory, out), pace, data, written)


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


def disk_of(recipe: Settings, memory: Memory, out: Path) -> Disk:
    """The bytes of checkpoints (those kept, the best, and the one being written), and the free bytes."""
    checkpoint = memory.weights + memory.optimizer + memory.average
    made = recipe.training.steps // recipe.checkpoint.every + 1 if recipe.checkpoint.every else 1
    at_once = min(recipe.checkpoint.keep + 2, made + 1)
    place = next(each for each in (out.absolute(), *out.absolute().parents) if each.is_dir())
    return Disk(checkpoint, checkpoint * at_once, shutil.disk_usage(place).free)
