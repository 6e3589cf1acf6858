"""What a user is shown before a run starts: what was chosen for it, and what it will need."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import statistics
import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from glassformer.base.errors import GlassformerError, ResourceError, is_out_of_memory
from glassformer.base.runtime import choose_device, choose_threads, seeded, threads_kept
from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.data.config import TokenizerConfig, names_file
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.nn.count import count_parameters
from glassformer.nn.flex import obstacle
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.recompute import recompute
from glassformer.nn.rules import RULES
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.store.folders import newest
from glassformer.train.loop import StepReport, train_steps
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective, objective_for
from glassformer.train.precision import choose_precision, compute_in
from glassformer.train.ranks.sharded import is_sharded
from glassformer.train.recipe import Recipe
from glassformer.train.records import bytes_text
from glassformer.train.run.beginning import Plain, Speed, begin, broken_notes, objective_of, optimizer_of
from glassformer.train.run.saving import Saver
from glassformer.train.run_data import RunData, Summary
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Settings, TrainingConfig, Update

HEAP = (1.2, 2.4)
"""How many times the bytes of its tensors a process held at most, lowest and highest, with glibc's default settings:
freed pieces between others that are in use stay with the heap. Measured; see docs/benchmarks.md. An accelerator's
allocator keeps almost none."""
THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
FIRST_PRODUCT, PRODUCT = 4 << 20, 680_000
"""Bytes of machine code and tables that a processor's library keeps for narrow products: once for the first, and for
each shape. Measured with oneDNN: 18 shapes of bfloat16 grew a process by 18 MiB."""


@dataclass(frozen=True)
class Stretch:
    """A part of a forward pass, a block or what is before or after blocks: the bytes it keeps for the backward."""

    stack: int | None
    """Which stack the block belongs to; None: outside of blocks."""
    kept: list[int] = field(default_factory=list)
    """Bytes of each tensor, in the order of the forward pass."""
    stream: int = 0
    """Bytes of the block's input."""


@dataclass(frozen=True)
class Memory:
    """An estimate of the most memory that training holds, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    average: int
    """Two copies of the weights if they are averaged: the average, and the weights while it is evaluated."""
    snapshot: int
    """The copy from which a checkpoint is written during training; 0 on an accelerator, where host memory holds it."""
    activations: int
    """What forward and backward hold at their peak beyond weights and optimizer, including the gradients so far, minus
    `gradients`."""
    kernels: int
    """What a processor's library compiles for narrow arithmetic; 0 in float32 and on an accelerator."""

    @property
    def peak(self) -> int:
        """The sum of all parts, at the peak."""
        return sum(asdict(self).values())

    def to_dict(self) -> dict[str, int]:
        """Plain values, for `--json`."""
        return {**asdict(self), "peak": self.peak}


def estimate(
    model: Transformer,
    batch: Batch,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    how: Update = Update(),
    *,
    average: bool = False,
    background: bool = False,
) -> Memory:
    """Estimate the memory of updates on batches like this one.

    Weights and gradients are counted, and so is the optimizer's state if it has any; before its first step AdamW's two
    moments are assumed. What the forward pass keeps is observed in one forward pass of the batch's largest piece, which
    throws it away at once and so needs little memory itself. The backward pass is computed from that: it releases in
    reverse order what the forward pass kept, and builds up the gradients of the weights on the way. In a block one
    gradient comes in and one goes out, each assumed to be as large as the tensor just reached; outside of blocks there
    is one. `average`: whether the weights are averaged; `background`: whether checkpoints are written beside training.
    Evaluations are not included, nor saves that training waits for.
    """
    pieces = batch.split(how.accumulate) if how.accumulate > 1 else [batch]
    stretches = kept_by(model, max(pieces, key=size_of), objective, how.precision)
    weights = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    gradients = sum(each.nbytes for each in model.parameters() if each.requires_grad)
    made = gradients if len(pieces) > 1 else 0
    fullest = max(fullest_moment(in_groups(stretches, how.recompute), gradients, made, how.recompute), gradients)
    state = [each for of in optimizer.state.values() for each in of.values() if isinstance(each, Tensor)]
    held = sum(each.nbytes for each in state) if state else 2 * gradients
    averaged = 2 * sum(each.nbytes for each in model.parameters()) if average else 0
    copied = background and next(model.parameters()).device.type == "cpu"
    snapshot = weights + held + averaged if copied else 0
    kernels = 0 if how.precision == "float32" else compiled_products(model)
    return Memory(weights, gradients, held, averaged, snapshot, fullest - gradients, kernels)


def compiled_products(model: Transformer) -> int:
    """Bytes of the products that a processor's library compiles: three per shape of a matrix, and attention's six.

    A matrix is multiplied in the forward pass and for two gradients; scores and weighted sums multiply two inputs.
    """
    if next(model.parameters()).device.type != "cpu":
        return 0
    shapes = {each.shape for each in model.parameters() if each.ndim == 2}
    return FIRST_PRODUCT + (3 * len(shapes) + 6) * PRODUCT


def kept_beside(recipe: Settings) -> dict[str, Any]:
    """The arguments of `estimate` that a recipe determines, for what is held besides the steps."""
    return {"average": recipe.optimizer.average > 0, "background": recipe.checkpoint.background}


def size_of(batch: Batch) -> int:
    """A measure that grows with a batch's memory: its places, and the pairs of places that attention compares."""
    sides = [batch.tokens.shape[:2], *([] if batch.source is None else [batch.source.shape[:2]])]
    return sum(rows * width * (64 + width) for rows, width in sides)


def heap_notes(device: torch.device) -> list[str]:
    """What a user should know about the heap; nothing if it returns what is freed."""
    # other heaps, and glibc's with this setting, keep little
    if not (device.type == "cpu" and platform.libc_ver()[0] == "glibc" and THRESHOLD not in os.environ):
        return []
    return [
        f"The C library keeps some freed memory: the process may hold {HEAP[0]} to {HEAP[1]} times the peak. To avoid "
        f"that, write {THRESHOLD}=65536 before the command; small steps then take up to half as long again."
    ]


def kept_by(model: Transformer, batch: Batch, objective: Objective, precision: str) -> list[Stretch]:
    """What one forward pass in training would keep for its backward, part by part; nothing is actually kept.

    A tensor kept by several parts counts in the first; weights do not count.
    """
    device, training = next(model.parameters()).device, model.training
    stretches = [Stretch(None)]
    seen = {StorageWeakRef(each.untyped_storage()).cdata: None for each in (*model.parameters(), *model.buffers())}
    references: list[StorageWeakRef] = []  # while a reference exists, no other storage has its address

    def note(tensor: Tensor) -> None:
        reference = StorageWeakRef(tensor.untyped_storage())
        if reference.cdata not in seen:
            seen[reference.cdata] = None
            references.append(reference)
            stretches[-1].kept.append(tensor.untyped_storage().nbytes())

    try:
        model.train()
        with (
            seeded(0, device=device),
            saved_tensors_hooks(note, _gone),
            compute_in(precision, device),
            _marking(model, stretches),
        ):
            loss_of(model, batch.to(device), objective)
    finally:
        model.train(training)
    return stretches


def _gone(nothing: None) -> Tensor:
    raise AssertionError("a forward that kept nothing has no backward")


@contextmanager
def _marking(model: nn.Module, stretches: list[Stretch]) -> Generator[None]:
    """Within the `with`, start a new stretch at each block, and one after the last."""

    def end(block: nn.Module, given: object, x: Tensor) -> None:
        stretches.append(Stretch(None))

    with ExitStack() as hooks:
        for number, stack in enumerate(each for each in model.modules() if isinstance(each, Stack)):
            for block in stack.blocks:
                note = partial(_begin, stretches, number)
                hooks.callback(block.register_forward_pre_hook(note).remove)
            hooks.callback(stack.blocks[-1].register_forward_hook(end).remove)
        yield


def _begin(stretches: list[Stretch], number: int, block: nn.Module, given: tuple[Any, ...]) -> None:
    stretches.append(Stretch(number, stream=given[0].nbytes))


def in_groups(stretches: Sequence[Stretch], size: int) -> list[Stretch]:
    """Merge the stretches of each `size` consecutive blocks of a stack; 0: unchanged."""
    grouped: list[Stretch] = []
    members = 0
    for each in stretches:
        if size and each.stack is not None and members % size and grouped[-1].stack == each.stack:
            grouped[-1].kept.extend(each.kept)
            members += 1
        else:
            grouped.append(Stretch(each.stack, [*each.kept], each.stream))
            members = 1
    return grouped


def fullest_moment(stretches: Iterable[Stretch], gradients: int, made: int, recompute: int) -> int:
    """Bytes of activations and gradients at the peak of a backward pass.

    It visits the stretches from last to first. `made`: bytes of gradients that exist before it; the others are assumed
    to grow evenly. A recomputed stretch holds only its input until it is visited.
    """
    stretches = list(stretches)
    total = sum(sum(each.kept) for each in stretches) or 1
    away = [each.stream if recompute and each.stack is not None else sum(each.kept) for each in stretches]
    fullest = done = 0
    for number, each in reversed(list(enumerate(stretches))):
        before, left = sum(away[:number]), sum(each.kept)
        for size in reversed(each.kept):
            grown = made or gradients * done // total
            passing = size if each.stack is None else 2 * size
            fullest = max(fullest, before + left + passing + grown)
            left, done = left - size, done + size
    return fullest


# When training runs out of memory: the estimate, the remedies and their effect, and what is left.

ANY = "--training.recompute 1; any other setting must be allowed by name, as with --allow-change training.accumulate"
"""The advice if no setting in particular helps."""


def memory_ran_out(
    error: Exception,
    run: Path,
    step: int,
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    prepared: RunData,
) -> Exception:
    """The exception to raise for an error after `step` steps: the error itself, unless memory ran out.

    First frees what the failed step held, so that there is room for the forward pass of the estimate.
    """
    if isinstance(error, GlassformerError) or not is_out_of_memory(error):
        return error
    what = in_a_line(error)
    traceback.clear_frames(error.__traceback__)
    optimizer.zero_grad(set_to_none=True)
    batch = next(prepared.batches(step))[1]
    helps = "Any of these helps: more processes, half of training.batch_tokens, training.recompute=1."
    if not is_sharded(next(model.parameters())):  # no process can run a forward pass of a sharded model alone
        helps = remedies(model, batch, objective_of(model, prepared.recipe), optimizer, prepared.recipe)
    return ResourceError(
        f"Memory ran out in step {step + 1}, in a batch of {batch.n_tokens:,} tokens ({what}). {helps} {left(run)}"
    )


@contextmanager
def enough_beside(what: str, helps: str, saver: Saver, step: int) -> Generator[None]:
    """Wrap what is done between two steps. `helps`: arguments of `resume` with which it needs less memory.

    Errors: `ResourceError` if memory runs out; it waits for the current save and says what is left.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error) or isinstance(error, GlassformerError):
            raise
        saver.close()
        message = f"Memory ran out after step {step}, in {what} ({in_a_line(error)}). {left(saver.lock.run, helps)}"
        raise ResourceError(message) from None


def half_batch(recipe: Settings) -> str:
    """The arguments with which an evaluation needs about half the memory."""
    return f"--decode.batch-size {max(1, recipe.decode.batch_size // 2)} --allow-change decode.batch_size"


def in_a_line(error: Exception) -> str:
    """The first line of an out-of-memory error."""
    return (str(error) or "no more available").splitlines()[0][:200]


def remedies(
    model: Transformer,
    batch: Batch,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    recipe: Settings,
) -> str:
    """What a step on this batch needs by the estimate, with the current settings and with others."""
    training, beside = recipe.training, kept_beside(recipe)

    def needs(**changes: int | str) -> str:
        how = replace(training.update, **changes)
        try:
            return f"about {bytes_text(estimate(model, batch, objective, optimizer, how, **beside).peak)}"
        except (MemoryError, RuntimeError):  # a forward pass needs memory too, and each library has its own error
            return "an unknown amount (memory ran out in the estimate too)"

    twice = 2 * training.accumulate
    ways = [
        f"training.batch_tokens={max(1, training.batch_tokens // 2)}",
        f"training.accumulate={twice} ({needs(accumulate=twice)}; without dropout the same gradients)",
    ]
    if not training.recompute:
        ways.append(f"training.recompute=1 ({needs(recompute=1)}; the same bits, for one more forward)")
    if training.precision == "float32":
        ways.append(f"training.precision=bfloat16 ({needs(precision='bfloat16')})")
    ways.append("a smaller model.d_model or model.n_layers")
    device = next(model.parameters()).device
    return f"By the estimate, the step needs {needs()}. Any of these helps: {', '.join(ways)}. " + " ".join(
        heap_notes(device)
    )


def left(run: Path, helps: str = ANY) -> str:
    """Say which checkpoint is left, and what to type next."""
    kept = newest(run).folder
    if kept is None:
        words = "the setting" if helps == ANY else helps.partition(" --allow-change")[0]
        return f"Nothing is lost: there is no checkpoint yet. Train again with {words}, and --overwrite."
    return (
        f"Nothing is lost: the last checkpoint, {kept}, is intact. Continue from it with the setting changed, as in "
        f"glassformer resume {shlex.quote(str(run))} {helps}."
    )


def chosen(model: Transformer, prepared: RunData) -> list[str]:
    """The lines that every start of a run shows."""
    _, total = count_parameters(model)
    lines = [f"attention: {attention(model, prepared)}", f"model: {total:,} parameters", *prepared.notes()]
    recipe = prepared.recipe
    return [*lines, *other_size(recipe.tokenizer, prepared), *rising(recipe.training), *broken_notes(recipe)]


def other_size(requested: TokenizerConfig, prepared: RunData) -> list[str]:
    """A line for each vocabulary that comes from a file, or has another size than was asked for."""
    if prepared.recipe.training.start_from is not None:  # a vocabulary that was there before
        return []
    kinds, usual = (
        {"source": requested.source_kind or requested.kind, "target": requested.kind},
        TokenizerConfig.vocab_size,
    )
    sizes = {side: getattr(prepared.tokenizers, side).vocab_size for side in kinds}
    learning = [name for name, made in TOKENIZERS.items() if made.least_vocab_size]
    notes: list[str] = []
    for side, file in kinds.items():
        if names_file(file):
            lacking = len(getattr(getattr(prepared.tokenizers, side), "lacking", ()))
            lacks = f"; it lacks {lacking} bytes of UTF-8, which become <unk>" if lacking else ""
            notes.append(f"{sizes[side]:,} tokens, of {file}{lacks}")
    for side, kind in kinds.items():
        if kind in learning and sizes[side] < requested.vocab_size:
            notes.append(f"{sizes[side]:,} of the {requested.vocab_size:,} tokens asked for: the text gives no more")
    if requested.vocab_size != usual and not {*learning} & {*kinds.values()}:
        of = "the file's" if any(map(names_file, kinds.values())) else "the text's"
        learned = ", ".join(learning)
        notes.append(
            f"all of {of}, as tokenizer.vocab_size ({requested.vocab_size:,}) is for kinds that learn: {learned}"
        )
    return [f"vocabulary: {each}" for each in dict.fromkeys(notes)]


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
    requested = model.config.stack.attention
    if requested != "auto":
        return f"{requested}, as asked"
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
        kind, T, S = q.device.type, q.shape[-2], call.k.shape[-2]
        name, why = pick(kind, T, S, call.mask, flexible=flexible, dropout=chance)
        picked.setdefault(name, why.format(device=kind, T=T, S=S))

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
def look_ahead(recipe: Recipe, out: Path, speed: Speed = Plain) -> Outlook:
    """Estimate what a run of the recipe in the folder `out` will need. Errors: those of reading data and recipe.

    Makes a few real updates, with the run's own settings and on its first batches after a warm-up of batch or length,
    and throws them away; the optimizer then has its state, which is measured. The rest of the memory is estimated.
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
    how = replace(training.update, precision=precision, label_smoothing=0.0)
    steps = train_steps(
        model,
        (batch for _, batch in prepared.batches(warm)),
        optimizer,
        Schedule("constant", training.learning_rate, FIRST + TIMED),
        how,
        objective=objective_of(model, decided),
    )
    data = prepared.summary()
    pace = paced(steps, data)
    objective = objective_of(model, decided)
    memory = max(
        (estimate(model, batch, objective, optimizer, how, **kept_beside(decided)) for batch in prepared.largest()),
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
