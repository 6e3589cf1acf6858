"""What a head gives for many samples, and the mean loss on them, in batches of like length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import Batch
from glassformer.decode.answer import nothing
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches, sum_of_batches


class Given(NamedTuple):
    """The head's output for some samples."""

    rows: list[int]
    batch: Batch
    output: Float[Tensor, "B *T N"]
    """On the CPU, as float32."""


def outputs(
    model: Transformer,
    lengths: Sequence[int],
    batch: Callable[[list[int]], Batch],
    *,
    batch_size: int = 128,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> Iterator[Given]:
    """What the head gives for each batch of this process; `batch` makes that of some rows, of these `lengths`.

    `poll` is called before each batch. Batches do not affect the result.
    """
    device, evaluation = next(model.parameters()).device, Evaluation(model)
    for rows in own_batches(np.asarray(lengths, np.int64), batch_size, ranks):
        poll()
        made = batch(rows)
        with evaluation, torch.no_grad():
            given = model(made.tokens.to(device), keep=None if made.keep is None else made.keep.to(device))
        yield Given(rows, made, given.float().cpu())


@torch.no_grad()
def mean_loss(
    model: Transformer,
    lengths: Sequence[int],
    batch: Callable[[list[int]], Batch],
    objective: Objective,
    *,
    batch_size: int = 128,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> tuple[float, int]:
    """The mean loss over all targets, in nats or as a squared error, and their number."""
    model.eval()
    device = next(model.parameters()).device
    sums: list[float] = []
    counts: list[int] = []
    for rows in own_batches(np.asarray(lengths, np.int64), batch_size, ranks):
        poll()
        made = batch(rows)
        sums.append(loss_of(model, made.to(device), objective).nll.item())
        counts.append(objective(made).n_targets)
    count = sum_of_batches(counts, ranks)
    return sum_of_batches(sums, ranks) / count, int(count)
