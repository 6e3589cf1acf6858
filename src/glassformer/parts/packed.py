"""A linear map in bfloat16 whose weights are packed once for the CPU's matrix product, for decoding."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.opaque import bfloat16_product


class PackedLinear(nn.Module):
    """y = x W^T + b in bfloat16, with W packed for oneDNN once; torch's own linear map packs it again at each call.

    It has no parameters. It needs a CPU with bfloat16 instructions (`has_bfloat16`).
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.width = len(weight)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().bfloat16(), None)
        self.bias = None if bias is None else bias.detach().bfloat16()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position."""
        return bfloat16_product(x, self.packed, self.bias, self.width)
