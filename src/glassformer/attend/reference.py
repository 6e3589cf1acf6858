"""Scaled dot-product attention, the equation written out: the specification of every other backend of this rule."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from glassformer.attend.mask import Mask
from glassformer.foundation.shapes import Float, Tensor


def attention_weights(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float
) -> Float[Tensor, "B H T S"]:
    """softmax(q k^T * scale + bias) over the keys that may be read (Vaswani et al. 2017, equation 1).

    Each row sums to 1, or to 0 where nothing may be read. Computed in float32 at least.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide), share_among_heads(k, q.shape[1]).to(wide)
    scores = q @ k.mT * scale
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(q.shape[-2], k.shape[-2], q.device)
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
    """attention(q, k, v) = weights (v + value_bias), with dropout on the weights."""
    weights = F.dropout(attention_weights(q, k, mask, scale=scale), dropout)
    output = weights @ share_among_heads(v, q.shape[1]).to(weights.dtype)
    if mask.value_bias is not None:
        output = output + mask.value_bias.read(weights)
    return output.to(q.dtype)


def share_among_heads(x: Float[Tensor, "B G S K"], n_heads: int) -> Float[Tensor, "B H S K"]:
    """Key/value head g serves the H/G query heads from g*H/G on (Ainslie et al. 2023, grouped-query attention)."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)
