"""A linear map that reads its weights as fast as memory gives them, for decoding on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Num, Tensor
from glassformer.parts.native import in_pieces, product
from glassformer.parts.opaque import native_product


class NativeLinear(nn.Module):
    """y = x W^T + b in float32, by our C++ (maps.h), with W in float32, or in bfloat16 if so given.

    In float32 the weights are those of the model, not copied. bfloat16 halves the bytes to be read; its numbers are
    widened when they are used, so that sums are as exact as in float32, and no instructions for bfloat16 are needed.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        (self.n_outputs, self.n_inputs), self.bias = weight.shape, bias
        self.weight: Num[Tensor, "..."] = weight if weight.dtype == torch.float32 else in_pieces(weight.detach())

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        multiply = native_product if torch.compiler.is_compiling() else product
        y = multiply(x.reshape(-1, x.shape[-1]).float(), self.weight, None, self.bias, self.n_outputs)
        return y.view(*x.shape[:-1], self.n_outputs)
