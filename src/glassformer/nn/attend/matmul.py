"""Attention as two batched matrix products and a softmax: the fastest backend for short sequences on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Lowered, Mask
from glassformer.nn.attend.softmax import softmax

Normalise = Callable[[Tensor, Lowered], Tensor]
"""Turns scores [..., S] and the mask, in the same layout, into weights; outputs of blind queries are zeroed later."""


def softmax_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """Weights of the softmax rule."""
    return softmax(scores if lowered.added is None else scores + lowered.added)


def matmul(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    *,
    scale: float,
    dropout: float = 0.0,
    normalise: Normalise = softmax_of_scores,
) -> Float[Tensor, "B H T K"]:
    """The equation of `reference`, in the dtype of the inputs and without copying keys for grouped heads.

    All scores [B, H, T, S] are held, so memory grows with T times S. Other rules differ only in `normalise`.
    """
    B, H, T, K = q.shape
    G, S = k.shape[1], k.shape[2]
    grouped = (q * scale).reshape(B, G, H // G * T, K)  # the heads of a group become further queries of one head
    scores = (grouped @ k.mT).view(B, H, T, S)
    lowered = mask.lower(T, S, scores)
    weights = F.dropout(normalise(scores, lowered).to(v.dtype), dropout)
    output = (weights.view(B, G, H // G * T, S) @ v).view(B, H, T, K)
    if mask.value_bias is not None:
        output = output + mask.value_bias.read(weights)
    return lowered.zero_blind(output)
