"""A linear map whose weights are 8-bit numbers, each row of them with a scale: half the bytes of bfloat16 to read."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Float, Int, Tensor

LARGEST = 127
"""The numbers are -127 to 127, so that W and -W are as exact."""
VECTOR = 16
"""torch's product reads so many numbers of a row at a time, also beyond its end: rows are filled up with zeros."""


class Int8Linear(nn.Module):
    """y = (x Q^T) * scale + b, where Q * scale is W to half a step: weights alone are rounded, x and sums are not.

    The largest weight of each output is 127 steps (LLM.int8(), Dettmers et al. 2022, section 2.1, row by row).
    A processor takes x in float32, bfloat16 or float16.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(
        self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        """Rounds a map's weights; `dtype` is that of x (none: the weight's). Errors: `DataError`."""
        super().__init__()
        rounded, scale = round_to_int8(weight.detach())
        dtype = weight.dtype if dtype is None else dtype
        self.filling = -weight.shape[1] % VECTOR
        self.register_buffer("weight", F.pad(rounded, (0, self.filling)))
        self.register_buffer("scale", scale.to(dtype))
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position."""
        rows = x.reshape(-1, x.shape[-1])
        rows = F.pad(rows, (0, self.filling)) if self.filling else rows
        y = torch.ops.aten._weight_int8pack_mm(rows, self.weight, self.scale)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], -1)


def round_to_int8(weight: Float[Tensor, "N D"]) -> tuple[Int[Tensor, "N D"], Float[Tensor, " N"]]:
    """Whole numbers Q and the size of a step for each row: Q * scale is the weight, to half a step.

    Errors: `DataError` for weights that are not finite.
    """
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    if not bool(wide.isfinite().all()):
        raise DataError("Only finite weights can be written in 8 bits; got NaN or infinity. Is the checkpoint broken?")
    largest = wide.abs().amax(1)
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (wide / scale[:, None]).round().to(torch.int8), scale
