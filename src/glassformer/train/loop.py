"""The training loop: a generator of one report per step. Its caller logs, evaluates, saves and stops."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch import nn

from glassformer.base.errors import ConfigError, DataError, DivergedError
from glassformer.base.registry import lookup
from glassformer.base.runtime import Crowding, seeded
from glassformer.base.typed import expect
from glassformer.data.batch import Batch
from glassformer.nn.recompute import recompute as recomputed
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective, objective_for
from glassformer.train.precision import ARITHMETIC, LossScale, compute_in
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.ranks.team import Team, pieces_of, team_of
from glassformer.train.schedule import Schedule
from glassformer.train.settings import Update


class StepReport(NamedTuple):
    """What one update did."""

    number: int
    """The number of the update, counted from 1."""
    loss: float
    """Negative log-likelihood per target token, in nats, before the update."""
    learning_rate: float
    grad_norm: float
    """The norm of the gradient before clipping."""
    tokens: int
    """Real tokens read, source and target."""
    pad_share: float
    seconds: float
    skipped: str = ""
    """Why this update was skipped: its loss or gradient was not finite; both are then reported as NaN."""
    overflowed: bool = False
    """Whether it was skipped because its gradient overflowed float16; see `LossScale`."""


def make_update(
    model: Transformer,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    number: int,
    how: Update,
    team: Team,
    loss_scale: LossScale | None,
) -> tuple[float, float]:
    """Make update `number`: gradients piece by piece, clipping, a step. Returns the loss before it and the norm."""
    device = next(model.parameters()).device
    n_targets, nll = count_targets(batch, team.objective, number), 0.0
    optimizer.zero_grad(set_to_none=True)
    pieces = [piece._replace(batch=piece.batch.to(device)) for piece in pieces_of(batch, how.accumulate, team.ranks)]
    with recomputed(model, how.recompute):
        team.rehearse(pieces[0].batch, compute_in(how.precision, device))
    for piece in pieces:
        with seeded(how.seed, number, piece.number, device=device), team.exchanging(piece is pieces[-1]):
            with compute_in(how.precision, device), recomputed(model, how.recompute):
                loss = team.loss(piece.batch)
            share = piece.share(loss.objective, n_targets)
            (share if loss_scale is None else loss_scale.scaler.scale(share)).backward()
        nll += loss.nll.item() if piece.counts else 0.0
    if loss_scale is not None:
        loss_scale.scaler.unscale_(optimizer)
    nll, total = team.ranks.all_sum(nll), team.norm()
    norm = float(total)
    finite = math.isfinite(nll) and math.isfinite(norm)
    if loss_scale is not None:
        loss_scale.after(number, finite=finite)
        if not finite:
            return nll / n_targets, norm
    if not finite:  # before clipping, which would spread NaN to all gradients
        with compute_in(how.precision, device):
            raise team.diverged(batch, how.accumulate, step=number, loss=nll / n_targets, grad_norm=norm)
    if how.clip > 0:
        nn.utils.clip_grads_with_norm_(model.parameters(), how.clip, total)
    optimizer.step()
    return nll / n_targets, norm


def train_steps(
    model: Transformer,
    batches: Iterable[Batch],
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    how: Update = Update(),
    *,
    objective: Objective | None = None,
    start: int = 0,
    loss_scale: LossScale | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[StepReport]:
    """Make one update per batch, from update `start` + 1 to `schedule.steps` or until the batches run out.

    `how` holds the settings of an update: the pieces of a batch, clipping, arithmetic, and what may be skipped. With
    dropout another number of pieces gives another run. Several processes (`ranks`) receive the same batches and share
    the pieces of each; see `train.ranks.team`. In float16 the loss is scaled by `loss_scale`, or by a new one if none
    is given.

    Errors: `ConfigError` before the first batch is read; `DivergedError` at the first update that is not finite and may
    not be skipped, or at the twentieth overflow in a row; `DataError` for a batch without targets.

    >>> import torch
    >>> from glassformer import Batch, ModelConfig, Schedule, StackConfig, Transformer, train_steps
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)
    >>> model = Transformer(ModelConfig(vocab_size=9, encoder=stack, decoder=stack))
    >>> batches = [Batch.pairs([[5, 6, 7]], [[7, 6, 5]])] * 3
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> [report.number for report in train_steps(model, batches, optimizer, Schedule("constant", 1e-3, steps=3))]
    [1, 2, 3]
    """
    refuse_unlike(model, batches, optimizer, schedule)
    team = team_of(model, objective or objective_for(model), how.label_smoothing, ranks)
    lookup(ARITHMETIC, how.precision, "precision")
    if how.precision == "float16" and loss_scale is None:
        loss_scale = LossScale(next(model.parameters()).device)
    skips = how.skip_nonfinite
    frozen = [each for each in model.modules() if not each.training]
    # waiting for a device or for other processes is no sign of other programs
    waits = ranks.count > 1 or next(model.parameters()).device.type != "cpu"
    crowding = Crowding(1 if waits else torch.get_num_threads())
    model.train()
    try:
        for number, batch in enumerate(islice(batches, max(0, schedule.steps - start)), start + 1):
            expect(batch, Batch, "Each batch of train_steps", "Make one with Batch.pairs or another method of Batch.")
            began, computed, rate = time.perf_counter(), time.thread_time(), schedule(number)
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("scale", 1.0)
            skipped = ""
            try:
                loss, norm = make_update(model, batch, optimizer, number, how, team, loss_scale)
            except DivergedError as error:
                # float16 raises only after a row of overflows; weights that are not finite never give a finite loss
                if skips == 0 or loss_scale or team.is_spoiled():
                    raise
                skips -= 1
                loss, norm, skipped = math.nan, math.nan, str(error)
            seconds, overflowed = time.perf_counter() - began, bool(loss_scale and loss_scale.in_a_row)
            crowding.after_step(seconds, time.thread_time() - computed)
            yield StepReport(number, loss, rate, norm, batch.n_tokens, batch.pad_share, seconds, skipped, overflowed)
            if not model.training:  # an evaluation between two steps may leave it so
                model.train()
    finally:
        for each in frozen:
            each.training = False


def refuse_unlike(model: nn.Module, batches: object, optimizer: torch.optim.Optimizer, schedule: object) -> None:
    """Refuse arguments of another class, and an optimizer of another model. Errors: `ConfigError`."""
    expect(schedule, Schedule, "schedule of train_steps", 'Give Schedule("constant", 1e-3, steps=100).')
    expect(batches, Iterable, "batches of train_steps", "Give a list of batches, or a generator.")
    way = "Give torch.optim.AdamW(model.parameters())."
    expect(optimizer, torch.optim.Optimizer, "optimizer of train_steps", way)
    own = {id(each) for each in model.parameters()}
    if not any(id(each) in own for group in optimizer.param_groups for each in group["params"]):
        raise ConfigError(f"The optimizer of train_steps must have parameters of the model; it has none. {way}")


def count_targets(batch: Batch, objective: Objective, step: int) -> int:
    """Count the batch's targets. Errors: `DataError` if there are none, because they would have no mean."""
    n_targets = objective(batch).n_targets
    if n_targets == 0:
        raise DataError(
            f"A batch must have at least one target; that of step {step} has none. Next-token batches need rows of two "
            "tokens or more, masked-token batches a blank. Remove the rows without targets."
        )
    return n_targets
