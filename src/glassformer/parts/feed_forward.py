"""The feed-forward branch: the same few linear maps at every position, plain or gated."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.dropout import Dropout


class FeedForward(nn.Module):
    """FFN(x) = activation(x W_up + b_up) W_down + b_down (Vaswani et al. 2017, equation 2); dropout before W_down."""

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

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position."""
        return self.down(self.dropout(self.activation(self.up(x))))

    @property
    def writers(self) -> list[nn.Linear]:
        """The maps that write to the residual stream."""
        return [self.down]


class GatedFeedForward(nn.Module):
    """FFN(x) = (activation(x W_gate) * (x W_up)) W_down (Shazeer 2020, equations 5 and 6), with optional biases.

    Its name depends on the activation: GLU (sigmoid, Dauphin et al. 2017), ReGLU (relu), GEGLU (gelu), SwiGLU (silu) or
    bilinear (identity). It has three matrices, so with 2/3 of the inner width it costs as much as the plain one.
    """

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
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position."""
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))

    @property
    def writers(self) -> list[nn.Linear]:
        """The maps that write to the residual stream."""
        return [self.down]
