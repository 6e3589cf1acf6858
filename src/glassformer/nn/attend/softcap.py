"""Softmax attention over scores that are kept between -cap and cap."""

from __future__ import annotations

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend.mask import Lowered, Mask
from glassformer.nn.attend.matmul import softmax_of_scores
from glassformer.nn.attend.reference import dot_products, softmax_over_readable
from glassformer.nn.attend.rule import Rule, rule_of_scores

CAP = 50.0
"""The cap of Gemma 2's attention layers."""


def softcap(cap: float = CAP) -> Rule:
    """The rule softmax(cap * tanh(q k^T * scale / cap) + bias) (Gemma Team 2024, Gemma 2, section 2).

    The bias, like the mask, is added after capping. Errors: `ConfigError` for a cap that is not positive.
    """
    if not cap > 0.0:
        raise ConfigError(f"softcap must be above 0, as scores are kept within it; got {cap}. Try softcap={CAP}.")

    def capped(scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        return cap * (scores / cap).tanh()

    def softcap_weights(
        q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float
    ) -> Float[Tensor, "B H T S"]:
        return softmax_over_readable(capped(dot_products(q, k, scale=scale)), mask)

    def softcap_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return softmax_of_scores(capped(wide), lowered).to(scores.dtype)

    return rule_of_scores(softcap_weights, softcap_of_scores)
