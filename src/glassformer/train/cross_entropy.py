"""Label-smoothed cross-entropy with its own backward pass, which saves memory.

Neither log-probabilities nor float32 logits ever exist as a whole. Computed from vectors and the matrix of a
vocabulary, not even the logits do.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.train import native_cross_entropy

NUMBERS = 1 << 20
"""Logits processed at a time, so that their float32 copy stays in the processor's cache."""
CHUNK = 1 << 24
"""Logits that `cross_entropy_of_vectors` holds at a time."""


def cross_entropy(
    logits: Float[Tensor, "M V"],
    ids: Int[Tensor, " N"],
    label_smoothing: float = 0.0,
    prior: Float[Tensor, " V"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return two sums over N: of (1 - e) * -log p(id) + e * sum_v u(v) * -log p(v), and of -log p(id) without gradient.

    See Szegedy et al. 2016, section 7, with e = `label_smoothing` and u = `prior`, which sums to 1; None: 1/V for each.
    Computed in float32 or wider, whatever the logits' dtype. Rows of logits after the first N have no target and are
    ignored.
    """
    objective, nll = _CrossEntropy.apply(logits, ids, label_smoothing, prior)
    return objective, nll


def cross_entropy_of_vectors(
    x: Float[Tensor, "M D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    ids: Int[Tensor, " N"],
    label_smoothing: float = 0.0,
    prior: Float[Tensor, " V"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """`cross_entropy` of the logits x W^T + b, of which at most `CHUNK` exist at a time.

    A chunk's gradients are computed while its logits exist, so nothing is computed twice; autocast narrows the products
    as it narrows those of a linear map.
    """
    given = (x, weight) if bias is None else (x, weight, bias)
    learns = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    objective, nll = _OfVectors.apply(x, weight, bias, ids, label_smoothing, prior, learns)
    return objective, nll


class _CrossEntropy(torch.autograd.Function):
    """-log p(v) = log sum exp(logits) - logit_v; d/dlogits = softmax - (1 - e) onehot(id) - e u."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, ids: Tensor, label_smoothing: float, prior: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the two sums; apart from the inputs, only the log-sums are saved."""
        objective, nll, log_sum = _sums(logits, ids, label_smoothing, prior)
        ctx.save_for_backward(logits, ids, log_sum, prior)
        ctx.label_smoothing = label_smoothing
        ctx.mark_non_differentiable(nll)
        return objective, nll

    # The decorator hides the parameters' names from the type checker.
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the first sum, in the logits' dtype."""
        logits, ids, log_sum, prior = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        _slopes(logits, ids, log_sum, ctx.label_smoothing, prior, grads[0], gradient)
        return gradient, None, None, None


class _OfVectors(torch.autograd.Function):
    """`_CrossEntropy` of x W^T + b. With s = d/dlogits: d/dx = s W, d/dW = s^T x, d/db = the sum of s over rows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        label_smoothing: float,
        prior: Tensor | None,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compute the two sums and, if anything learns, save the gradients for an upstream gradient of 1."""
        narrow = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        with torch.autocast(x.device.type, enabled=False):
            own, matrix = x.to(narrow), weight.to(narrow)
            added = None if bias is None else bias.to(narrow)
            found: list[tuple[Tensor, Tensor]] = []
            of_x, of_weight = (torch.empty_like(x), torch.zeros_like(weight)) if learns else (None, None)
            of_bias = torch.zeros_like(bias) if learns and bias is not None else None
            rows = max(1, CHUNK // max(1, len(weight)))
            for first in range(0, max(1, len(x)), rows):
                part = slice(first, first + rows)
                logits = F.linear(own[part], matrix, added)
                objective, nll, log_sum = _sums(logits, ids[part], label_smoothing, prior)
                found.append((objective, nll))
                if of_x is None or of_weight is None:
                    continue
                _slopes(logits, ids[part], log_sum, label_smoothing, prior, torch.ones_like(objective), logits)
                of_x[part] = logits @ matrix
                _add_product(of_weight, logits.mT, own[part])
                if of_bias is not None:
                    of_bias += logits.sum(0)
        ctx.save_for_backward(of_x, of_weight, of_bias)
        objective, nll = (torch.stack(each).sum() for each in zip(*found, strict=True))
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Multiply the saved gradients of the first sum by the upstream gradient."""
        own = (None if each is None else each * grads[0].to(each.dtype) for each in ctx.saved_tensors)
        return (*own, None, None, None, None)


def _add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    """Add one @ other to `total`, without a second matrix of its size unless autocast has narrowed the factors."""
    if total.dtype == one.dtype:
        total.addmm_(one, other)
    else:
        total += one @ other


def _sums(logits: Tensor, ids: Tensor, label_smoothing: float, prior: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two sums, and log sum exp of each row."""
    logits = logits[: len(ids)]
    of_ids = logits.gather(-1, ids[:, None])[:, 0]
    of_rows = native_cross_entropy.sums if native_cross_entropy.serves(logits, prior) else _row_sums
    log_sum, mean = of_rows(logits, prior, with_means=label_smoothing > 0)
    nll = (log_sum - of_ids.to(log_sum.dtype)).sum()
    spread = nll if mean is None else (log_sum - mean).sum()
    return nll + label_smoothing * (spread - nll), nll, log_sum


def _row_sums(logits: Tensor, prior: Tensor | None, *, with_means: bool) -> tuple[Tensor, Tensor | None]:
    """Log sum exp of each row and, if asked for, its mean, weighed by `prior`."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_sums, means = [logits.new_zeros(0, dtype=wide)], [logits.new_zeros(0, dtype=wide)]
    for rows in logits.split(_rows(logits)):
        rows = rows.to(wide)
        log_sums.append(rows.logsumexp(-1))
        if with_means:
            means.append(rows.mean(-1) if prior is None else rows @ prior.to(wide))
    return torch.cat(log_sums), torch.cat(means) if with_means else None


def _slopes(
    logits: Tensor, ids: Tensor, log_sum: Tensor, e: float, prior: Tensor | None, scale: Tensor, gradient: Tensor
) -> None:
    """Write scale * d/dlogits of the first sum into `gradient`, which may be `logits` itself."""
    gradient[len(ids) :] = 0
    logits, gradient = logits[: len(ids)], gradient[: len(ids)]
    if native_cross_entropy.serves(logits, prior) and gradient.is_contiguous():
        native_cross_entropy.slopes(logits, ids, log_sum, e, prior, scale, gradient)
        return
    pieces = (each.split(_rows(logits)) for each in (logits, gradient, ids, log_sum))
    for rows, out, ids_here, log_sum_here in zip(*pieces, strict=True):
        p = (rows.to(log_sum.dtype) - log_sum_here[:, None]).exp_()
        if e:
            p.sub_(e / logits.shape[-1] if prior is None else e * prior.to(p.dtype))
        p.scatter_add_(1, ids_here[:, None], p.new_full((len(p), 1), e - 1.0))
        out.copy_(p.mul_(scale))


def _rows(logits: Tensor) -> int:
    """How many rows of logits make up `NUMBERS`."""
    return max(1, NUMBERS // max(1, logits.shape[-1]))
