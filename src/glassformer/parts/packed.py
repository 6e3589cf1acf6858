"""A linear map in bfloat16 whose weights are laid out once as the processor's product reads them."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.opaque import bfloat16_product


class PackedLinear(nn.Module):
    """y = x W^T + b in bfloat16, with W laid out for oneDNN: torch's own linear map lays it out anew at each call.

    Nothing is learned. It needs a processor that has bfloat16 (`has_bfloat16`).
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.width = len(weight)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16(), None)
        self.bias = None if bias is None else bias.detach().bfloat16()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position."""
        return bfloat16_product(x, self.packed, self.bias, self.width)
