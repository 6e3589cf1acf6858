"""A linear map that reads its weights as fast as memory gives them, for decoding on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.native import product
from glassformer.parts.opaque import native_product


class NativeLinear(nn.Module):
    """y = x W^T + b in float32, with W in float32 or bfloat16 as it lies in memory, by our C++ (maps.h).

    The weights are not copied: they are those of the model. bfloat16 halves the bytes to be read; its numbers are
    widened when they are used, so that sums are as exact as in float32, and no instructions for bfloat16 are needed.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        multiply = native_product if torch.compiler.is_compiling() else product
        y = multiply(x.reshape(-1, x.shape[-1]).float(), self.weight, None, self.bias)
        return y.view(*x.shape[:-1], len(self.weight))
