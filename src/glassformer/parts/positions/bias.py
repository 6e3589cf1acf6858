"""Order added to the scores: the further a key, the lower."""

from __future__ import annotations

import math

import torch

from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.parts.positions.scheme import Positions


class Alibi(Positions):
    """score - slope_h * |distance|, slope_h = 2^(-8 h / H) (Press, Smith and Lewis 2022, section 3).

    For a number of heads that is no power of two, the slopes of the next lower power come first, then every other
    one of the next higher, as in the paper's code.
    """

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The penalties, 0 at a query's own position."""
        distance = (queries[..., :, None] - keys[..., None, :]).abs().to(like.dtype)
        slopes = torch.tensor(alibi_slopes(self.room.n_heads), dtype=like.dtype, device=like.device)
        return -slopes[:, None, None] * distance[..., None, :, :]


def alibi_slopes(n_heads: int) -> list[float]:
    """One slope a head."""
    lower = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / lower) for h in range(lower)]
    return slopes + [2.0 ** (-4.0 * (h + 1) / lower) for h in range(0, 2 * (n_heads - lower), 2)]
