"""A bias added to the values, different for each pair of query and key."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class ValueBias:
    """Query t reads v_s + table[index[t, s]] from key s (Shaw, Uszkoreit and Vaswani 2018, equation 3)."""

    table: Float[Tensor, "R K"]
    """The R vectors that can be added, the same for all heads."""
    index: Int[Tensor, "*#batch T S"]
    """The row of the table to add for each pair."""

    def read(self, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T K"]:
        """sum over s of weight[t, s] table[index[t, s]].

        The weights are first summed per table row, so that no vector per pair is held. Sums are in float32 or wider.
        """
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        rows = self.index if self.index.ndim == 3 else self.index[None]
        empty = wide.new_zeros(*wide.shape[:-1], len(self.table))
        by_row = empty.scatter_add(-1, rows[:, None].expand_as(wide), wide)
        return (by_row @ self.table.to(wide.dtype)).to(weights.dtype)


def refuse(value_bias: ValueBias | None, backend: str) -> None:
    """Raise `ConfigError` for a value bias: the named backend does not hold the weights that it needs."""
    if value_bias is not None:
        raise ConfigError(
            f"A value bias needs a backend that stores attention weights, and {backend!r} does not. "
            "Use the backend 'matmul' or 'auto' of attention_rule='softmax'."
        )
