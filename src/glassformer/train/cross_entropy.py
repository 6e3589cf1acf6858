"""Label-smoothed cross-entropy with a backward of its own: neither log-probabilities nor float32 logits exist whole."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from glassformer.foundation.shapes import Float, Int, Tensor

NUMBERS = 1 << 20
"""Logits handled at a time, so that their float32 copy stays in the processor's cache."""


def cross_entropy(
    logits: Float[Tensor, "M V"], ids: Int[Tensor, " N"], label_smoothing: float = 0.0
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Two sums over N: of (1 - e) * -log p(id) + e * mean_v -log p(v), and of -log p(id) without gradient.

    Szegedy et al. 2016, section 7, with e = `label_smoothing`. In float32 at least, whatever the logits' dtype. Rows of
    logits behind the first N ask for nothing and take no part.
    """
    objective, nll = _CrossEntropy.apply(logits, ids, label_smoothing)
    return objective, nll


class _CrossEntropy(torch.autograd.Function):
    """-log p(v) = log sum exp(logits) - logit_v; d/dlogits = softmax - (1 - e) onehot(id) - e/V."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
        """The sums; only the log-sums are kept."""
        every, logits = logits, logits[: len(ids)]
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_sums, means = [], []
        for rows in logits.split(_rows(logits)):
            rows = rows.to(wide)
            log_sums.append(rows.logsumexp(-1))
            if label_smoothing:
                means.append(rows.mean(-1))
        log_sum = torch.cat(log_sums) if log_sums else logits.new_zeros(0, dtype=wide)
        nll = (log_sum - logits.gather(-1, ids[:, None])[:, 0].to(wide)).sum()
        spread = (log_sum - torch.cat(means)).sum() if means else nll
        ctx.save_for_backward(every, ids, log_sum)
        ctx.label_smoothing = label_smoothing
        ctx.mark_non_differentiable(nll)
        return nll + label_smoothing * (spread - nll), nll

    # The decorator hides the parameters' names from the type checker.
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the first sum, in the logits' dtype."""
        logits, ids, log_sum = ctx.saved_tensors
        e, scale = ctx.label_smoothing, grads[0]
        gradient = torch.empty_like(logits)
        gradient[len(ids) :] = 0
        asked = logits[: len(ids)], gradient[: len(ids)], ids, log_sum
        pieces = (each.split(_rows(logits)) for each in asked)
        for rows, out, ids_here, log_sum_here in zip(*pieces, strict=True):
            p = (rows.to(log_sum.dtype) - log_sum_here[:, None]).exp_()
            if e:
                p.sub_(e / logits.shape[-1])
            p.scatter_add_(1, ids_here[:, None], p.new_full((len(p), 1), e - 1.0))
            out.copy_(p.mul_(scale))
        return gradient, None, None


def _rows(logits: Tensor) -> int:
    """How many rows make up NUMBERS."""
    return max(1, NUMBERS // max(1, logits.shape[-1]))
