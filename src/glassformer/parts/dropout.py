"""Dropout that costs little on a CPU, where torch draws its random numbers one at a time."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.shapes import Float, Tensor


class Dropout(nn.Module):
    """x / (1 - p) where a coin with chance p of zero falls the other way (Srivastava et al. 2014), in training only.

    On a CPU the coins come from numpy's SFC64, 16 bits each, seeded from torch's generator: the same torch seed gives
    the same coins, at a tenth of the cost (`make bench`). p is thereby a multiple of 1/65,536.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """x with some numbers zeroed and the others enlarged, so that the mean stays."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        kept = 1.0 - zeros(self.p) / 65_536
        return x * coins(x.shape, self.p, x.dtype) * (1.0 / kept)

    def extra_repr(self) -> str:
        """The chance, for printing."""
        return f"p={self.p}"


def zeros(p: float) -> int:
    """How many of a coin's 65,536 sides fall as zero; one is left, however near p is to 1."""
    return min(round(p * 65_536), 65_535)


def coins(shape: torch.Size, p: float, dtype: torch.dtype) -> Float[Tensor, "..."]:
    """0 with chance p, else 1, independently in each place. Numbers, as a product is much faster than a choice."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    n = shape.numel()
    words = np.random.SFC64(seed).random_raw((n + 3) // 4).view(np.int16)[:n]
    return torch.ge(torch.from_numpy(words).view(shape), zeros(p) - 32_768, out=torch.empty(shape, dtype=dtype))
