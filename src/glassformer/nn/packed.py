"""A linear map whose weights are packed once for the CPU's matrix product, for decoding."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.opaque import packed_product


def can_pack(device: torch.device) -> bool:
    """Whether oneDNN multiplies matrices on this device."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()


class PackedLinear(nn.Module):
    """y = x W^T + b in the dtype of W, float32 or bfloat16, with W packed for oneDNN once.

    torch's own linear map reads W as it lies, or packs it at each call, which takes longer for a few rows. It has no
    parameters. For bfloat16 it needs a CPU with bfloat16 instructions (`has_bfloat16`).
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.width, self.dtype = len(weight), weight.dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        return packed_product(x.to(self.dtype), self.packed, self.bias, self.width)
