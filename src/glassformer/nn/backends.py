"""Softmax attention by matrix products and by torch's fused kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F

from glassformer.base.errors import ConfigError
from glassformer.base.part import explained
from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values
from glassformer.nn.lowered import Lowered, lower
from glassformer.nn.mask import Mask, ValueBias


def softmax(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """exp(score), divided by its sum over the row, in the dtype of the scores: the weights of the softmax rule."""
    return lowered.add_to(scores).softmax(-1)


Normalise = Callable[[Tensor, Lowered], Tensor]
"""Turns scores [..., S] and the mask, in the same layout, into weights; outputs of blind queries are zeroed later."""


@explained
def matmul(
    q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0, normalise: Normalise = softmax
) -> Queries:
    """The equation of `reference`, in the dtype of the inputs and without copying keys for grouped heads.

    All scores [B, H, T, S] are held, so memory grows with T times S. Other rules differ only in `normalise`.
    """
    B, H, T, K = q.shape
    G, S = k.shape[1], k.shape[2]
    grouped = (q * scale).reshape(B, G, H // G * T, K)  # the heads of a group become further queries of one head
    scores = (grouped @ k.mT).view(B, H, T, S)
    lowered = lower(mask, T, S, scores)
    weights = normalise(scores, lowered).to(v.dtype)
    if dropout:
        weights = F.dropout(weights, dropout)
    output = (weights.view(B, G, H // G * T, S) @ v).view(B, H, T, K)
    if mask.value_bias is not None:
        output = output + mask.value_bias.read(weights)
    return lowered.zero_blind(output)


def refuse(value_bias: ValueBias | None, backend: str) -> None:
    """Raise `ConfigError` for a value bias: the named backend does not hold the weights that it needs."""
    if value_bias is not None:
        raise ConfigError(
            f"A value bias needs a backend that stores attention weights, and {backend!r} does not. "
            "Use the backend 'matmul' or 'auto' of attention_rule='softmax'."
        )


@explained
def sdpa(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """`torch.nn.functional.scaled_dot_product_attention` under our mask.

    The kernel's own causal mask aligns the first query with the first key, so it is used only where T = S. A single
    query is the last position: it reads every key and needs no mask. Errors: `ConfigError` for a value bias.
    """
    refuse(mask.value_bias, "sdpa")
    T, S = q.shape[-2], k.shape[-2]
    grouped = q.shape[1] != k.shape[1]
    if mask.hides_nothing or (mask.only_causal and T in (1, S)):
        causal = mask.causal and T > 1
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, dropout_p=dropout, enable_gqa=grouped
        )
    lowered = lower(mask, T, S, q)
    output = F.scaled_dot_product_attention(
        q, k, v, attn_mask=lowered.added, scale=scale, dropout_p=dropout, enable_gqa=grouped
    )
    return lowered.zero_blind(output)
