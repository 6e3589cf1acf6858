"""Estimating each head's importance for the loss by gradients: one backward pass instead of one ablation per head."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import Batch
from glassformer.lens.ablate import Head, n_heads
from glassformer.lens.blocks import place
from glassformer.nn.attention import Attend
from glassformer.nn.mask import Mask
from glassformer.nn.observe import Evaluation, attentions
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import Objective


def gradient_importance(model: Transformer, batches: Sequence[Batch], objective: Objective) -> dict[Head, float]:
    """Return I_h = mean over x of |d L(x) / d xi_h|, where xi_h = 1 scales head h's output (Michel et al. 2019, eq. 2).

    The absolute value is taken per sequence, as opposite signs would cancel over a batch. Sequences do not attend to
    each other, so one backward pass of the summed loss gives the gradient of each. As in the paper, each attention's
    values are divided by their l2 norm, so they are at most 1.
    """
    with Evaluation(model):
        raw = per_sequence(model, batches, objective)
    sizes = {where: each.abs().mean(0) for where, each in raw.items()}
    return {
        (*where, head): float(size[head] / size.norm().clamp(min=torch.finfo(size.dtype).tiny))
        for where, size in sizes.items()
        for head in range(len(size))
    }


def per_sequence(
    model: Transformer, batches: Sequence[Batch], objective: Objective
) -> dict[tuple[str, int], Float[Tensor, "N H"]]:
    """Return d L(x) / d xi_h of each sequence x, by attention; L is the summed loss of the sequence's targets."""
    watched = {place(name): attention for name, attention in attentions(model).items()}
    seams = {where: attention.attend for where, attention in watched.items()}
    found: dict[tuple[str, int], list[Tensor]] = {where: [] for where in watched}
    device = next(model.parameters()).device
    try:
        for batch in (each.to(device) for each in batches):
            gates = {
                where: torch.ones(len(batch.tokens), n_heads(each), 1, 1).to(each.output.weight).requires_grad_()
                for where, each in watched.items()
            }
            for where, attention in watched.items():
                attention.attend = _gated(seams[where], gates[where])
            loss = loss_of(model, batch, objective).objective
            gradients = torch.autograd.grad(loss, list(gates.values()))
            for where, gradient in zip(gates, gradients, strict=True):
                found[where].append(gradient[:, :, 0, 0])
    finally:
        for where, attention in watched.items():
            attention.attend = seams[where]
    return {where: torch.cat(each) for where, each in found.items()}


def _gated(own: Attend, gate: Tensor) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        return own(q, k, v, mask, scale=scale, dropout=dropout) * gate

    return attend
