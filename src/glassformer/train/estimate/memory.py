"""What training holds in memory: what has a size is counted, what a forward keeps is seen in one real forward."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from glassformer.data.batch import Batch
from glassformer.foundation.shapes import Tensor
from glassformer.model.stack import Stack
from glassformer.model.transformer import Transformer
from glassformer.train.loop import compute_in, seeded
from glassformer.train.objective import Objective, loss_of
from glassformer.train.recipe import Recipe

HEAP = (1.2, 2.4)
"""How many times what its tensors hold a process held at most, on glibc as it is by itself: pieces that were freed,
between others that were not, stay with the heap. Measured; see docs/benchmarks.md. An accelerator's allocator has next
to none of it."""
THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
FIRST_PRODUCT, PRODUCT = 4 << 20, 680_000
"""Bytes of machine code and tables that a processor's library keeps of a narrow product: those of the first, and of
each shape. Measured with oneDNN: 18 shapes of bfloat16 grew a process by 18 MiB."""


@dataclass(frozen=True)
class Stretch:
    """A part of a forward, a block or what lies before or behind blocks: the bytes it keeps for the backward."""

    stack: int | None
    """Which stack the block belongs to; None: outside of blocks."""
    kept: list[int] = field(default_factory=list)
    """Bytes of each tensor, in the order of the forward."""
    stream: int = 0
    """Bytes of what goes into the block."""


@dataclass(frozen=True)
class Memory:
    """An estimate of what training holds at most, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    average: int
    """Two copies of the weights where they are averaged: the average, and the weights while it is evaluated."""
    snapshot: int
    """What a checkpoint is written from while training goes on; 0 on an accelerator, as the host's memory holds it."""
    activations: int
    """What forward and backward hold at their fullest beyond weights and optimizer, gradients made so far included,
    less `gradients`."""
    kernels: int
    """What a processor's library compiles for narrow arithmetic; 0 in float32 and on an accelerator."""

    @property
    def peak(self) -> int:
        """All of it, at the fullest moment."""
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
    """The memory of updates on batches like this one.

    Weights and gradients are counted. So is the optimizer's state where there is one; before its first step AdamW's
    two moments are assumed. What the forward keeps is seen in one forward of the largest piece of the batch, which
    throws it away at once and so needs little memory itself; the backward is computed from it: it lets go in the
    opposite order of what the forward kept and builds up the gradients of weights as it goes; in a block one gradient
    comes in and one goes out, each taken to be as large as what it has just come to, and behind the blocks one.
    `average`: whether the weights are averaged; `background`: whether checkpoints are written beside training. Scoring
    is not in it, nor a save that training waits for.
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
    """Bytes of the products that a processor's library compiles: three for each shape of a matrix, and attention's six.

    A matrix is multiplied forwards, and for two gradients; scores and their weighted sum are products of two inputs.
    """
    if next(model.parameters()).device.type != "cpu":
        return 0
    shapes = {each.shape for each in model.parameters() if each.ndim == 2}
    return FIRST_PRODUCT + (3 * len(shapes) + 6) * PRODUCT


def kept_beside(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe `estimate` is told, of what is held besides the steps."""
    return {"average": recipe.optimizer.average > 0, "background": recipe.checkpoint.background}


def size_of(batch: Batch) -> int:
    """What the memory of a batch grows with: places, and the pairs of places that attention compares."""
    sides = [batch.tokens.shape[:2], *([] if batch.source is None else [batch.source.shape[:2]])]
    return sum(rows * width * (64 + width) for rows, width in sides)


def keeps_freed_pieces(device: torch.device) -> bool:
    """Whether memory comes from glibc's heap as it is by itself; with `MALLOC_MMAP_THRESHOLD_` set, little stays."""
    return device.type == "cpu" and platform.libc_ver()[0] == "glibc" and THRESHOLD not in os.environ


def heap_notes(device: torch.device) -> list[str]:
    """What a user should know of the heap; nothing where it gives back what is freed."""
    if not keeps_freed_pieces(device):
        return []
    return [
        f"The C library's heap keeps pieces that were freed: the process may hold {HEAP[0]} to {HEAP[1]} times the "
        f"peak. {THRESHOLD}=65536 before the command avoids that; small steps then take up to half as long again."
    ]


def kept_by(model: Transformer, batch: Batch, objective: Objective, precision: str) -> list[Stretch]:
    """What one forward in training keeps for its backward, stretch by stretch; nothing is in fact kept.

    A tensor that several stretches keep counts in the first; weights do not count.
    """
    device, training = next(model.parameters()).device, model.training
    stretches = [Stretch(None)]
    seen = {StorageWeakRef(each.untyped_storage()).cdata: None for each in (*model.parameters(), *model.buffers())}
    references: list[StorageWeakRef] = []  # while one is there, no other storage has its address

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
    """While it lasts, a new stretch begins with each block, and one behind the last."""

    def through(blocks: nn.ModuleList, run: Callable[[nn.Module, Tensor], Tensor], x: Tensor, *, number: int) -> Tensor:
        for block in blocks:
            stretches.append(Stretch(number, stream=x.nbytes))
            x = run(block, x)
        stretches.append(Stretch(None))
        return x

    stacks = [each for each in model.modules() if isinstance(each, Stack)]
    before = [stack.through for stack in stacks]
    try:
        for number, stack in enumerate(stacks):
            stack.through = partial(through, number=number)
        yield
    finally:
        for stack, own in zip(stacks, before, strict=True):
            stack.through = own


def in_groups(stretches: Sequence[Stretch], size: int) -> list[Stretch]:
    """The stretches with `size` blocks of a stack taken together; 0: as they are."""
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
    """Bytes of activations and gradients at the fullest moment of a backward.

    It comes to the stretches from the last to the first. `made`: bytes of gradients that are there before it; the
    others are made evenly. A recomputed stretch holds what goes into it, until it is come to.
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
