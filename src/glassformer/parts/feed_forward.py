"""The feed-forward branch: the same two linear maps at every position."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import nn

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.dropout import Dropout


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2), as GPT-2 uses it."""
    return F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    """FFN(x) = activation(x W_up + b_up) W_down + b_down (Vaswani et al. 2017, equation 2), dropout between the two."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        *,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The map at each position."""
        return self.down(self.dropout(self.activation(self.up(x))))

    @property
    def writer(self) -> nn.Linear:
        """The map that writes to the residual stream."""
        return self.down
