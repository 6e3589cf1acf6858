"""The memory of training: estimated before it starts, and the advice where it was not enough.

Sizes that are known are counted, the rest is observed in one real forward pass.
"""

from __future__ import annotations

import os
import platform
import shlex
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
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
from glassformer.base.runtime import seeded
from glassformer.base.shapes import Tensor
from glassformer.data.batch import Batch
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.store.folders import newest
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective
from glassformer.train.precision import compute_in
from glassformer.train.ranks.sharded import is_sharded
from glassformer.train.records import bytes_text
from glassformer.train.run.beginning import objective_of
from glassformer.train.run.saving import Saver
from glassformer.train.run_data import RunData
from glassformer.train.settings import Settings

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
    *,
    precision: str = "float32",
    accumulate: int = 1,
    recompute: int = 0,
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
    pieces = batch.split(accumulate) if accumulate > 1 else [batch]
    stretches = kept_by(model, max(pieces, key=size_of), objective, precision)
    weights = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    gradients = sum(each.nbytes for each in model.parameters() if each.requires_grad)
    made = gradients if len(pieces) > 1 else 0
    fullest = max(fullest_moment(in_groups(stretches, recompute), gradients, made, recompute), gradients)
    state = [each for of in optimizer.state.values() for each in of.values() if isinstance(each, Tensor)]
    held = sum(each.nbytes for each in state) if state else 2 * gradients
    averaged = 2 * sum(each.nbytes for each in model.parameters()) if average else 0
    copied = background and next(model.parameters()).device.type == "cpu"
    snapshot = weights + held + averaged if copied else 0
    kernels = 0 if precision == "float32" else compiled_products(model)
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


def _begin(stretches: list[Stretch], number: int, block: nn.Module, given: tuple[Tensor, ...]) -> None:
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
        told = f"Memory ran out after step {step}, in {what} ({in_a_line(error)}). {left(saver.run, helps)}"
        raise ResourceError(told) from None


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
        settings = replace(training, **changes)
        asked: Mapping[str, Any] = {name: getattr(settings, name) for name in ("precision", "accumulate", "recompute")}
        try:
            return f"about {bytes_text(estimate(model, batch, objective, optimizer, **asked, **beside).peak)}"
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
