"""A linear map that reads its weights as fast as memory gives them, for decoding on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Float, Num, Tensor
from glassformer.fast.native import in_pieces
from glassformer.nn.native_map import NativeMap
from glassformer.nn.packed import PackedLinear, can_pack

FEW = 32
"""Beyond this many positions, bfloat16 is multiplied by oneDNN where the processor has instructions for it."""


class NativeLinear(nn.Module):
    """y = x W^T + b in float32, by our C++ (maps.h), with W in float32, or in bfloat16 if so given.

    In float32 the weights are those of the model, not copied, and torch multiplies where gradients are wanted.
    bfloat16 halves the bytes to be read; its numbers are widened when they are used, so that sums are as exact as in
    float32, and no instructions for bfloat16 are needed. Where there are such instructions, many positions are
    multiplied by `PackedLinear`, which rounds x and y to bfloat16 too; for this, weights are in memory twice.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        (self.n_outputs, self.n_inputs), self.bias = weight.shape, bias
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        narrow, device = weight.dtype == torch.bfloat16, weight.device
        self.weight: Num[Tensor, "..."] = in_pieces(weight.detach()) if narrow else weight.contiguous()
        hardware = narrow and has_bfloat16(device) and can_pack(device)
        self.packed = PackedLinear(weight, None if bias is None else bias.bfloat16()) if hardware else None

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        many = x.numel() > FEW * self.n_inputs
        if self.packed is not None and many and not torch.compiler.is_compiling():
            return self.packed(x).float()
        wanted = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if wanted and self.weight.dtype == torch.float32:
            return F.linear(x.float(), self.weight, self.bias)
        return self._map(x, self.weight, None, self.bias)
