"""ALiBi: position as a bias that lowers the score of a key with its distance."""

from __future__ import annotations

import math

import torch

from glassformer.base.recording import constant
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.positions.scheme import Positions


class Alibi(Positions):
    """score - slope_h * |distance|, slope_h = 2^(-8 h / H) (Press, Smith and Lewis 2022, section 3).

    If the number of heads is not a power of two, the slopes for the next lower power come first, then every other slope
    for the next higher one, as in the paper's code.
    """

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The penalties, 0 at a query's own position."""
        wide = torch.promote_types(like.dtype, torch.float32)  # float16 ends at 65,504, where a penalty may be small
        distance = (queries[..., :, None] - keys[..., None, :]).abs().to(wide)
        slopes = constant(alibi_slopes(self.room.n_heads), wide, like.device)
        return (-slopes[:, None, None] * distance[..., None, :, :]).to(like.dtype)


def alibi_slopes(n_heads: int) -> list[float]:
    """The slope of each head."""
    lower = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / lower) for h in range(lower)]
    return slopes + [2.0 ** (-4.0 * (h + 1) / lower) for h in range(0, 2 * (n_heads - lower), 2)]
