"""Attention by torch's fused kernels, which avoid holding the T x S scores where the mask allows it."""

from __future__ import annotations

import torch.nn.functional as F

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Mask
from glassformer.nn.attend.value_bias import refuse


def sdpa(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S K"],
    mask: Mask,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T K"]:
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
    lowered = mask.lower(T, S, q)
    output = F.scaled_dot_product_attention(
        q, k, v, attn_mask=lowered.added, scale=scale, dropout_p=dropout, enable_gqa=grouped
    )
    return lowered.zero_blind(output)
