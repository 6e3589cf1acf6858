"""Stochastic depth: a branch that some sequences skip in training."""

from __future__ import annotations

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.dropout import Dropout


class StochasticDepth(Dropout):
    """Dropout of a branch as a whole, with one coin a sequence (Huang et al. 2016, section 3).

    What stays is divided by 1 - p in training, so that the mean is the branch's output and evaluation needs nothing;
    the paper multiplies by 1 - p in evaluation instead. The coins are those of `Dropout`, from torch's seed.
    """

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """x with some rows zeroed and the others enlarged."""
        if not self.training or self.p == 0.0:
            return x
        return x * super().forward(x.new_ones(x.shape[0], 1, 1))


def drop_chance(block: int, n_layers: int, last: float) -> float:
    """The chance of block 0, 1, ... of a stack: it grows linearly to `last` at the last block (section 3)."""
    return last * (block + 1) / n_layers
