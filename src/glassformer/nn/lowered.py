"""A mask as tensors that an attention kernel can use: what is added to the scores, and which queries are blind."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.nn.mask import Mask


@dataclass(frozen=True, eq=False)
class Lowered:
    """A mask as tensors that an attention kernel can use."""

    added: Float[Tensor, "*#rows S"] | None
    """Added to the scores: 0 (or the bias) where a key may be read, else -inf; None to add nothing."""
    blind: Bool[Tensor, "*#rows 1"] | None
    """True at queries that may read no key, whose output is zero; None if there are none."""
    allowed: Bool[Tensor, "*#rows S"] | None
    """True at keys that may be read; None if all may be."""

    def add_to(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        """The scores with the mask, and its bias, added."""
        return scores if self.added is None else scores + self.added

    def zero_blind(self, output: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
        """Replace the output of queries that may read no key by zeros."""
        return output if self.blind is None else output.masked_fill(self.blind, 0.0)


def lower(mask: Mask, T: int, S: int, like: Float[Tensor, "..."]) -> Lowered:
    """Turn the mask into a tensor to add to scores, in the dtype and on the device of `like`.

    The layers of a forward pass share a mask, so the result is cached; but not with a learned bias, whose graph must
    belong to one backward pass.
    """

    def build() -> Lowered:
        bias = None if mask.bias is None else mask.bias.to(like.dtype)
        if bias is not None and bias.ndim == 3:
            bias = bias[None]
        return combine(mask.allowed(T, S, like.device), bias, like, always_reads=always_reads(mask, T, S))

    return mask.once((T, S, like.dtype, like.device), build)


def always_reads(mask: Mask, T: int, S: int) -> bool:
    """Whether every query certainly reads at least itself; decided without looking at tensor values."""
    others = (mask.keep, mask.key_positions, mask.query_positions, mask.query_documents, mask.table)
    return T <= S and all(other is None for other in others)


def combine(
    allowed: Bool[Tensor, "*#allowed S"] | None,
    bias: Float[Tensor, "*#bias S"] | None,
    like: Float[Tensor, "..."],
    *,
    always_reads: bool = False,
) -> Lowered:
    """Combine which keys may be read and the bias into one tensor to add; with `always_reads` no query is blind."""
    if allowed is None:
        return Lowered(bias, None, None)
    blind = ~allowed.any(-1, keepdim=True)  # keeps finite scores, so no NaN; its output is zeroed later
    zeros = like.new_zeros(()) if bias is None else bias
    added = torch.where(allowed | blind, zeros, float("-inf"))
    return Lowered(added, None if always_reads else blind, allowed)
