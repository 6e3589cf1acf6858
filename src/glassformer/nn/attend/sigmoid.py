"""Sigmoid attention: the weight of each key depends on its own score, not on those of other keys."""

from __future__ import annotations

import math

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Lowered, Mask
from glassformer.nn.attend.reference import dot_products


def sigmoid_weights(
    q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float
) -> Float[Tensor, "B H T S"]:
    """sigmoid(score - log n), where n is how many keys the query may read (Ramapuram et al. 2024, section 3).

    In the paper n is the sequence length. Counting readable keys gives the same if all are read. Otherwise it is the
    only n with which a row's output depends neither on padding nor on how long the row will become.
    """
    scores = dot_products(q, k, scale=scale)
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is None:
        return (scores - math.log(scores.shape[-1])).sigmoid()
    n = allowed.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
    return (scores - n.log()).sigmoid().masked_fill(~allowed, 0.0)


def sigmoid_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """The same weights, with the mask added to the scores: the sigmoid of -inf is 0."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if lowered.added is not None:
        wide = wide + lowered.added
    if lowered.allowed is None:
        return (wide - math.log(scores.shape[-1])).sigmoid().to(scores.dtype)
    n = lowered.allowed.sum(-1, keepdim=True).clamp(min=1).to(wide.dtype)
    return (wide - n.log()).sigmoid().to(scores.dtype)
