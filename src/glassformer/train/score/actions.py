"""Score a model of trajectories: the action that it predicts for each step, beside the one that was taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.batch import Batch
from glassformer.data.trajectories.spaces import Spaces
from glassformer.decode.answer import nothing
from glassformer.nn.heads import SequenceHead
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import asked_for, hidden, loss_in_places
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import own_batches, sum_of_batches
from glassformer.train.record.events import Metric


@torch.no_grad()
def action_scores(
    model: Transformer,
    spaces: Spaces,
    lengths: NDArray[np.int64],
    batch_of: Callable[[list[int]], Batch],
    *,
    batch_size: int,
    objective: Objective,
    poll: Callable[[], None] = nothing,
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """Return the scores of windows of these lengths, of which `batch_of` makes batches.

    - `loss`: of numbered actions, nats an action; of vectors, the squared error of a standardised number.
    - `accuracy`, of numbered actions: the share of steps whose action got the highest score.
    - `error`, of vectors: the mean distance of a number from the one in the data, in the data's unit.
    - `n`: steps.

    Several processes (`ranks`) share the batches and get the same metrics, to the last bit.
    """
    model.eval()
    device, head = next(model.parameters()).device, model.head
    assert not isinstance(head, SequenceHead), "of an episode every step is asked for"
    spread = torch.tensor(spaces.scales.acted_spread, device=device)
    own: list[tuple[float, int, float]] = []
    for rows in own_batches(lengths, batch_size, ranks):
        poll()
        there = batch_of(rows).to(device)
        asked = objective(there)
        vectors, wanted = asked_for(hidden(model, there, asked), asked)
        given = head(vectors)[: len(wanted)]
        off = (given.argmax(-1) == wanted).sum() if spaces.entries else ((given - wanted).abs() * spread).sum()
        own.append((loss_in_places(head, vectors, wanted, 0.0).nll.item(), wanted.numel(), off.item()))
    total, n, off = (sum_of_batches([each[which] for each in own], ranks) for which in range(3))
    return {"loss": total / n, "accuracy" if spaces.entries else "error": off / n, "n": int(lengths.sum())}
