"""Stochastic depth: a branch that some sequences skip in training."""

from __future__ import annotations

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.dropout import Dropout


class StochasticDepth(Dropout):
    """Drops a whole branch, independently for each sequence (Huang et al. 2016, section 3).

    In training, kept outputs are divided by 1 - p, so that their expected value is the branch's output and evaluation
    changes nothing; the paper multiplies by 1 - p in evaluation instead. Random numbers come from `Dropout`.
    """

    def forward(self, x: Float[Tensor, "B T D"], onto: Float[Tensor, "B T D"] | None = None) -> Float[Tensor, "B T D"]:
        """Zeroes some rows of x and scales up the others. If `onto` is given, the result is added to it."""
        if self.training and self.p > 0.0:
            x = x * super().forward(x.new_ones(x.shape[0], 1, 1))
        return x if onto is None else onto + x


def drop_chance(block: int, n_layers: int, last: float) -> float:
    """The drop probability of block 0, 1, ...: it grows linearly to `last` at the last block (section 3)."""
    return last * (block + 1) / n_layers
