"""Scaled dot-product attention, written as its equation; it specifies what the faster backends must compute."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Mask


def attention_weights(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float
) -> Float[Tensor, "B H T S"]:
    """softmax(q k^T * scale + bias) over the keys that may be read (Vaswani et al. 2017, equation 1).

    Each row sums to 1, or to 0 where no key may be read. Computed in float32 or wider.
    """
    return softmax_over_readable(dot_products(q, k, scale=scale), mask)


def dot_products(q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], *, scale: float) -> Float[Tensor, "B H T S"]:
    """The scores q k^T * scale, in float32 or wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), share_among_heads(k, q.shape[1]).to(wide)
    return q @ k.mT * scale


def softmax_over_readable(scores: Float[Tensor, "B H T S"], mask: Mask) -> Float[Tensor, "B H T S"]:
    """exp(score + bias), divided by its sum over the keys that may be read."""
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is None:
        return scores.softmax(-1)
    reads_something = allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed & reads_something, float("-inf"))
    return scores.softmax(-1).masked_fill(~allowed, 0.0)


def reference(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T K"]:
    """attention(q, k, v) = weights (v + value_bias), with dropout applied to the weights."""
    return weighted_sum(F.dropout(attention_weights(q, k, mask, scale=scale), dropout), v, mask).to(q.dtype)


def weighted_sum(
    weights: Float[Tensor, "B H T S"], v: Float[Tensor, "B G S K"], mask: Mask
) -> Float[Tensor, "B H T K"]:
    """weights (v + value_bias), where each head uses the values of its group."""
    output = weights @ share_among_heads(v, weights.shape[1]).to(weights.dtype)
    return output if mask.value_bias is None else output + mask.value_bias.read(weights)


def share_among_heads(x: Float[Tensor, "B G S K"], n_heads: int) -> Float[Tensor, "B H S K"]:
    """Repeat key/value head g for the H/G query heads from g*H/G on (grouped-query attention, Ainslie et al. 2023)."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)
