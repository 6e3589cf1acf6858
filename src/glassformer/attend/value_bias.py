"""Something added to the values for each pair of query and key, not for each key alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class ValueBias:
    """Query t reads v_s + table[index[t, s]] from key s (Shaw, Uszkoreit and Vaswani 2018, equation 3)."""

    table: Float[Tensor, "R K"]
    """What may be added, the same for all heads."""
    index: Int[Tensor, "*#batch T S"]
    """Which row of the table is added for each pair."""

    def read(self, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T K"]:
        """sum over s of weight[t, s] table[index[t, s]]: the weights are summed by row, then the rows are mixed.

        So no vector for each pair is ever held. Sums are taken in float32 at least.
        """
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        rows = self.index if self.index.ndim == 3 else self.index[None]
        empty = wide.new_zeros(*wide.shape[:-1], len(self.table))
        by_row = empty.scatter_add(-1, rows[:, None].expand_as(wide), wide)
        return (by_row @ self.table.to(wide.dtype)).to(weights.dtype)


def refuse(value_bias: ValueBias | None, backend: str) -> None:
    """Errors: `ConfigError` for a value bias, from a backend that does not hold the weights it would be mixed by."""
    if value_bias is not None:
        raise ConfigError(
            f"A value bias is mixed by the attention weights, which the backend {backend!r} never holds whole. "
            "Use the backend 'matmul', or 'auto'."
        )
