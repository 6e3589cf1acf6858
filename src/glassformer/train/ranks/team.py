"""Divide a batch among processes, and combine their gradients into that of the batch.

The batch of a step is the same for any number of processes. It is cut into (processes x accumulate) numbered pieces;
process r of n computes the pieces r, r + n, r + 2n and so on, and all gradients are summed. Each piece's loss is
divided by the number of targets of the whole batch, so the sum is the gradient of the mean over all its tokens,
whichever piece a token is in. (A mean of the processes' means would give the tokens of a short piece more weight.)

Dropout depends only on (seed, step, piece): n processes that each cut their share into a pieces drop the same as one
process that cuts the batch into n a pieces.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.nn.parallel import DistributedDataParallel

from glassformer.base.errors import DivergedError
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import Loss, loss_of
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.sharded import is_sharded, local, put_back, whole


class Piece(NamedTuple):
    """Some rows of a batch, which one process computes."""

    number: int
    """The piece's number in the batch, from 0, which determines its dropout."""
    batch: Batch
    counts: bool = True
    """False for a stand-in, for a process without rows of its own: all must make the same number of calls."""

    def share(self, total: Tensor, n_targets: int) -> Tensor:
        """This piece's part of the mean over the whole batch's `n_targets`; a stand-in adds zeros."""
        return total / (n_targets if self.counts else math.inf)


def pieces_of(batch: Batch, accumulate: int, ranks: Ranks = ALONE) -> list[Piece]:
    """The pieces of a batch that this process computes; every process has the same number of them."""
    if accumulate * ranks.count == 1:
        return [Piece(0, batch)]
    cut = batch.split(accumulate * ranks.count)
    mine = [Piece(number, cut[number]) for number in range(ranks.number, len(cut), ranks.count)]
    if len(mine) < math.ceil(len(cut) / ranks.count):
        mine.append(Piece(0, cut[0], counts=False))
    return mine


class Team:
    """A single process: its gradients are the batch's. The subclasses differ in what processes exchange."""

    def __init__(self, model: Transformer, objective: Objective, label_smoothing: float, ranks: Ranks = ALONE) -> None:
        self.model = model
        self.objective = objective
        self.label_smoothing = label_smoothing
        self.ranks = ranks

    def loss(self, batch: Batch) -> Loss:
        """The loss of one piece, as sums over its targets."""
        return loss_of(self.model, batch, self.objective, label_smoothing=self.label_smoothing)

    def rehearse(self, batch: Batch, arithmetic: contextlib.AbstractContextManager[object]) -> None:
        """Prepare the exchange, before the first piece of each batch; `arithmetic` is that of its forward pass."""

    def exchanging(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """A context around forward and backward of a piece; after the last piece all processes have the sums."""
        return contextlib.nullcontext()

    def norm(self) -> Tensor:
        """The norm of the whole gradient, the same on each process."""
        return nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])

    def is_spoiled(self) -> bool:
        """Whether any process has a weight that is not finite."""
        return self.ranks.any(first_bad_weight(self.model) is not None)

    def diverged(self, batch: Batch, accumulate: int, *, step: int, loss: float, grad_norm: float) -> DivergedError:
        """Explain why the loss or gradient of this batch is not finite: all processes search together."""
        device = next(self.model.parameters()).device
        n_pieces = accumulate * self.ranks.count
        cut = [each.to(device) for each in (batch.split(n_pieces) if n_pieces > 1 else [batch])]
        return explain(self.model, cut, self.objective, step=step, loss=loss, grad_norm=grad_norm, ranks=self.ranks)


class LossModule(nn.Module):
    """The loss as a module, for DistributedDataParallel to wrap, so that the model keeps its own names."""

    def __init__(self, model: Transformer, loss: Callable[[Batch], Loss]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> Loss:
        """The loss of one piece."""
        return self.loss(batch)


class Replicas(Team):
    """Each process has the whole model; gradients are summed, bucket by bucket, during the last piece's backward.

    DistributedDataParallel (Li et al. 2020, "PyTorch Distributed"), with sums instead of means. All processes start
    with the weights of the first.
    """

    def __init__(self, model: Transformer, objective: Objective, label_smoothing: float, ranks: Ranks) -> None:
        super().__init__(model, objective, label_smoothing, ranks)
        self.wrapped = DistributedDataParallel(LossModule(model, super().loss))
        # The wrapper refuses a hook whose annotations are strings, as all in this file are.
        self.wrapped.register_comm_hook(None, lambda group, bucket: summed(group, bucket))  # pyright: ignore[reportUnknownLambdaType]
        self.rehearsed = False

    def loss(self, batch: Batch) -> Loss:
        """The loss of one piece, whose backward takes part in the exchange."""
        return self.wrapped(batch)

    def rehearse(self, batch: Batch, arithmetic: contextlib.AbstractContextManager[object]) -> None:
        """Let the wrapper see one backward, after which it rebuilds its buckets in the order of the gradients.

        With other buckets more than two numbers add up to other last bits: without this, the first step after a resume
        would differ from the same step of an uninterrupted run.
        """
        if self.rehearsed:
            return
        device = next(self.model.parameters()).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            with arithmetic:  # another arithmetic would take memory that no step takes
                objective = self.wrapped(batch).objective
            (objective / math.inf).backward()
        self.model.zero_grad(set_to_none=True)
        self.rehearsed = True

    def exchanging(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Exchange gradients only after the last piece."""
        return contextlib.nullcontext() if last else self.wrapped.no_sync()


def summed(group: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over the processes, in the background."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    return work.get_future().then(alone)


def alone(done: torch.futures.Future[list[Tensor]]) -> Tensor:
    """The only tensor of a finished exchange."""
    return done.value()[0]


class Shards(Team):
    """Each process has a part of every weight; FSDP2 gathers a block when needed and sums its gradients.

    `sharded.cut` made the model so.
    """

    def norm(self) -> Tensor:
        """The norm of the whole gradient, of whose square each process knows a part."""
        return whole(super().norm())

    def diverged(self, batch: Batch, accumulate: int, *, step: int, loss: float, grad_norm: float) -> DivergedError:
        """As with one process; the processes gather each block for each other, as in an evaluation."""
        error = super().diverged(batch, accumulate, step=step, loss=loss, grad_norm=grad_norm)
        put_back(self.model)
        return error


def team_of(model: Transformer, objective: Objective, label_smoothing: float, ranks: Ranks) -> Team:
    """The team for this model: what its processes have to exchange."""
    kind = Shards if is_sharded(next(model.parameters())) else Replicas if ranks.count > 1 else Team
    return kind(model, objective, label_smoothing, ranks)


# Share an evaluation among several processes: each takes every n-th batch, and afterwards all have all results.


def own_batches(lengths: NDArray[np.int64], size: int, ranks: Ranks) -> list[list[int]]:
    """The batches that this process takes, of all rows sorted by length."""
    order = lengths.argsort(kind="stable").tolist()
    return [order[first : first + size] for first in range(0, len(order), size)][ranks.number :: ranks.count]


def sum_of_batches(own: Sequence[float | int], ranks: Ranks) -> float:
    """The sum of one number per batch, in the order of the batches; `own`: those of this process's batches."""
    parts = ranks.gathered(own)
    return sum(parts[number % ranks.count][number // ranks.count] for number in range(sum(map(len, parts))))


def rows_of_all(rows: Sequence[int], values: Sequence[Sequence[int]], ranks: Ranks) -> list[list[int]]:
    """Whole numbers for each row, in the order of the rows, gathered from `values` of each process's `rows`."""
    own = chain.from_iterable((row, len(each), *each) for row, each in zip(rows, values, strict=True))
    found: dict[int, list[int]] = {}
    for part in ranks.gathered(list(own)):
        numbers = [int(each) for each in part]
        at = 0
        while at < len(numbers):
            row, count = numbers[at : at + 2]
            found[row] = numbers[at + 2 : at + 2 + count]
            at += 2 + count
    return [found[row] for row in sorted(found)]


# When a loss or gradient is no longer finite, find the first module that caused it.


def explain(
    model: Transformer,
    pieces: Sequence[Batch],
    objective: Objective,
    *,
    step: int,
    loss: float,
    grad_norm: float,
    ranks: Ranks = ALONE,
) -> DivergedError:
    """The error to raise before the update: step, loss, norm, the first module to blame, and what to do."""
    named = reversed([(name, parameter.grad) for name, parameter in model.named_parameters()])
    name = first_bad(named, ranks)
    of_gradient = f"The outputs are finite; the gradient of {name} is not." if name else None
    # first, as a forward pass hides the gradients of a sharded model
    blame = first_bad_weight(model, ranks) or first_bad_output(model, pieces, objective) or of_gradient
    autocast = torch.is_autocast_enabled(next(model.parameters()).device.type)
    narrow = ", training.precision=float32" if autocast else ""
    return DivergedError(
        f"Training must stay finite; at step {step} the loss is {loss:.4g} and the gradient's norm {grad_norm:.4g}. "
        f"{blame or 'No single module is to blame: the sum overflowed.'} "
        f"The weights were not updated. Try a lower training.learning_rate{narrow} or a longer training.warmup."
    )


def first_bad_weight(model: nn.Module, ranks: Ranks = ALONE) -> str | None:
    """A sentence on the first parameter with a value that is not finite, in any of the processes."""
    name = first_bad(model.named_parameters(), ranks)
    return f"The weight {name} is not finite." if name else None


def first_bad_output(model: Transformer, pieces: Sequence[Batch], objective: Objective) -> str | None:
    """A sentence on the first module, in the order of the computation, whose output is not finite."""
    found: list[str] = []

    def watch(name: str) -> object:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and not bool(output.isfinite().all()):
                found.append(name)

        return hook

    handles = [
        module.register_forward_hook(watch(name))  # pyright: ignore[reportArgumentType]
        for name, module in model.named_modules()
        if name and not any(True for _ in module.children())
    ]
    try:
        with torch.no_grad():
            for piece in pieces:
                loss_of(model, piece, objective)
    finally:
        for handle in handles:
            handle.remove()
    return f"The first module whose output is not finite is {found[0]}." if found else None


def first_bad(named: Iterable[tuple[str, Tensor | None]], ranks: Ranks) -> str | None:
    """The name of the first tensor of which any process has a part that is not finite."""
    names, tensors = zip(*named, strict=True)
    found = (number for number, each in enumerate(tensors) if each is not None and not local(each).isfinite().all())
    first = -int(ranks.largest(-next(found, len(names))))
    return names[first] if first < len(names) else None
