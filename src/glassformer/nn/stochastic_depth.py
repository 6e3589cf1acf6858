"""Stochastic depth: a branch that some sequences skip in training."""

from __future__ import annotations

from torch import nn

from glassformer.base.shapes import Float, Tensor


class StochasticDepth(nn.Dropout):
    """Drops a whole branch, independently for each sequence (Huang et al. 2016, section 3).

    In training, kept outputs are divided by 1 - p, so that their expected value is the branch's output and evaluation
    changes nothing; the paper multiplies by 1 - p in evaluation instead.
    """

    def forward(self, input: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Zeroes some rows and scales up the others."""
        if not self.training or self.p == 0.0:
            return input
        return input * super().forward(input.new_ones(input.shape[0], 1, 1))


def drop_chance(block: int, n_layers: int, last: float) -> float:
    """The drop probability of block 0, 1, ...: it grows linearly to `last` at the last block (section 3)."""
    return last * (block + 1) / n_layers
