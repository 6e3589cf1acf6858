"""Label-smoothed cross-entropy with its own backward pass, which saves memory.

Neither log-probabilities nor float32 logits ever exist as a whole. Computed from vectors and the matrix of a
vocabulary, not even the logits do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from glassformer.base.runtime import autocast_dtype, without_autocast
from glassformer.base.shapes import Bool, Float, Int, Tensor

LOGITS = 1 << 28
"""The most logits that exist at a time: a gigabyte in float32."""


class Kernel(NamedTuple):
    """How rows of logits are summed up, and how many exist at a time; a head may carry a faster one, `loss_kernel`."""

    sums: Callable[..., tuple[Tensor, Tensor | None]]
    """As `row_sums`."""
    slopes: Callable[..., None]
    """As `row_slopes`."""
    whole: int
    """Up to so many logits are computed in one piece."""
    chunk: int
    """Beyond, pieces of so many."""


def cross_entropy(
    logits: Float[Tensor, "M V"],
    ids: Int[Tensor, " N"],
    label_smoothing: float = 0.0,
    prior: Float[Tensor, " V"] | None = None,
    kernel: Kernel | None = None,
    keep: Bool[Tensor, " N"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return two sums over N: of (1 - e) * -log p(id) + e * sum_v u(v) * -log p(v), and of -log p(id) without gradient.

    See Szegedy et al. 2016, section 7, with e = `label_smoothing` and u = `prior`, which sums to 1; None: 1/V for each.
    Computed in float32 or wider, whatever the logits' dtype. Rows of logits after the first N have no target and are
    ignored, as are those where `keep` is False.
    """
    objective, nll = _CrossEntropy.apply(logits, ids, label_smoothing, prior, kernel or PLAIN, without(keep))
    return objective, nll


def cross_entropy_of_vectors(
    x: Float[Tensor, "M D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    ids: Int[Tensor, " N"],
    label_smoothing: float = 0.0,
    prior: Float[Tensor, " V"] | None = None,
    kernel: Kernel | None = None,
    keep: Bool[Tensor, " N"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """`cross_entropy` of the logits x W^T + b, of which at most `kernel.chunk` exist at a time.

    A chunk's gradients are computed while its logits exist, so nothing is computed twice; autocast narrows the products
    as it narrows those of a linear map.
    """
    given = (x, weight) if bias is None else (x, weight, bias)
    learns = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    objective, nll = _OfVectors.apply(
        x, weight, bias, ids, label_smoothing, prior, learns, kernel or PLAIN, without(keep)
    )
    return objective, nll


def without(keep: Bool[Tensor, " N"] | None) -> Bool[Tensor, " N"] | None:
    """True at the rows that are left out; None: none."""
    return None if keep is None else ~keep


class _CrossEntropy(torch.autograd.Function):
    """-log p(v) = log sum exp(logits) - logit_v; d/dlogits = softmax - (1 - e) onehot(id) - e u."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        ids: Tensor,
        label_smoothing: float,
        prior: Tensor | None,
        kernel: Kernel,
        out: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the two sums; apart from the inputs, only the log-sums are saved."""
        objective, nll, log_sum = _sums(logits, ids, label_smoothing, prior, kernel, out)
        ctx.save_for_backward(logits, ids, log_sum, prior, out)
        ctx.label_smoothing, ctx.kernel = label_smoothing, kernel
        ctx.mark_non_differentiable(nll)
        return objective, nll

    # The decorator hides the parameters' names from the type checker.
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the first sum, in the logits' dtype."""
        logits, ids, log_sum, prior, out = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        _slopes(logits, ids, log_sum, ctx.label_smoothing, prior, grads[0], gradient, ctx.kernel, out)
        return gradient, None, None, None, None, None


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
        kernel: Kernel,
        out: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the two sums and, if anything learns, save the gradients for an upstream gradient of 1."""
        narrow = autocast_dtype(x.device.type) or x.dtype
        with without_autocast(x.device.type):
            own, matrix = x.to(narrow), weight.to(narrow)
            added = None if bias is None else bias.to(narrow)
            found: list[tuple[Tensor, Tensor]] = []
            one = x.new_ones((), dtype=torch.promote_types(narrow, torch.float32))
            of_x, of_weight = (torch.zeros_like(x), torch.zeros_like(weight)) if learns else (None, None)
            of_bias = torch.zeros_like(bias) if learns and bias is not None else None
            rows, N = max(1, kernel.chunk // max(1, len(weight))), len(ids)
            parts = zip(own[:N].split(rows), ids.split(rows), *in_parts((of_x, out), N, rows), strict=True)
            for vectors, ids_here, of_vectors, left_out in parts:
                logits = F.linear(vectors, matrix, added)
                objective, nll, log_sum = _sums(logits, ids_here, label_smoothing, prior, kernel, left_out)
                found.append((objective, nll))
                if of_vectors is None or of_weight is None:
                    continue
                _slopes(logits, ids_here, log_sum, label_smoothing, prior, one, logits, kernel, left_out)
                of_vectors.copy_(logits @ matrix)
                # without a second matrix of its size, unless autocast has narrowed the factors
                if of_weight.dtype == logits.dtype:
                    of_weight.addmm_(logits.mT, vectors)
                else:
                    of_weight += logits.mT @ vectors
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
        return (*own, None, None, None, None, None, None)


def in_parts(tensors: Iterable[Tensor | None], N: int, rows: int) -> Iterator[Sequence[Tensor | None]]:
    """The first N rows of each tensor, `rows` at a time; a None for each part of one that is None."""
    for each in tensors:
        yield [None] * max(1, -(-N // rows)) if each is None else each[:N].split(rows)


def _sums(
    logits: Tensor,
    ids: Tensor,
    label_smoothing: float,
    prior: Tensor | None,
    kernel: Kernel,
    out: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two sums, and log sum exp of each row."""
    logits = logits if len(logits) == len(ids) else logits[: len(ids)]
    of_ids = logits.gather(-1, ids[:, None])[:, 0]
    log_sum, mean = kernel.sums(logits, prior, with_means=label_smoothing > 0)
    nll = kept(log_sum - of_ids.to(log_sum.dtype), out).sum()
    spread = nll if mean is None else kept(log_sum - mean, out).sum()
    return nll + label_smoothing * (spread - nll), nll, log_sum


def row_sums(logits: Tensor, prior: Tensor | None, *, with_means: bool) -> tuple[Tensor, Tensor | None]:
    """Log sum exp of each row and, if asked for, its mean, weighed by `prior`."""
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if not with_means:
        return rows.logsumexp(-1), None
    return rows.logsumexp(-1), rows.mean(-1) if prior is None else rows @ prior.to(rows.dtype)


def _slopes(
    logits: Tensor,
    ids: Tensor,
    log_sum: Tensor,
    e: float,
    prior: Tensor | None,
    scale: Tensor,
    gradient: Tensor,
    kernel: Kernel,
    out: Tensor | None,
) -> None:
    """Write scale * d/dlogits of the first sum into `gradient`, which may be `logits` itself."""
    if len(logits) > len(ids):
        gradient[len(ids) :] = 0
        logits, gradient = logits[: len(ids)], gradient[: len(ids)]
    kernel.slopes(logits, ids, log_sum, e, prior, scale, gradient)
    if out is not None:
        gradient.masked_fill_(out[:, None], 0.0)


def kept(values: Float[Tensor, " N"], out: Bool[Tensor, " N"] | None) -> Float[Tensor, " N"]:
    """The values, 0 where they are left out."""
    return values if out is None else values.masked_fill(out, 0.0)


def row_slopes(
    logits: Tensor, ids: Tensor, log_sum: Tensor, e: float, prior: Tensor | None, scale: Tensor, gradient: Tensor
) -> None:
    """`scale` times softmax - (1 - e) onehot(id) - e u, for as many rows as there are ids."""
    p = (logits.to(log_sum.dtype) - log_sum[:, None]).exp_()
    if e:
        p.sub_(e / logits.shape[-1] if prior is None else e * prior.to(p.dtype))
    p.scatter_add_(1, ids[:, None], p.new_full((len(p), 1), e - 1.0))
    gradient.copy_(p.mul_(scale))


PLAIN = Kernel(row_sums, row_slopes, whole=LOGITS, chunk=LOGITS)
