"""Softmax with 1 added to its denominator, so that a head can read almost nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Lowered, Mask
from glassformer.nn.attend.reference import dot_products


def plus_one_weights(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float
) -> Float[Tensor, "B H T S"]:
    """exp(score) / (1 + sum over the readable keys of exp(score)) (Miller 2023, "Attention is off by one").

    This is a softmax over the keys and one extra key, whose score and value are 0. A row sums to less than 1.
    """
    scores = dot_products(q, k, scale=scale)
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return F.pad(scores, (0, 1)).softmax(-1)[..., :-1]


def plus_one_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """The same weights without a padded copy; scores are shifted by their largest (at least 0) to avoid overflow."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if lowered.added is not None:
        wide = wide + lowered.added
    largest = wide.detach().amax(-1, keepdim=True).clamp(min=0.0)
    powers = (wide - largest).exp()
    return (powers / (powers.sum(-1, keepdim=True) + (-largest).exp())).to(scores.dtype)
