"""A linear map in whole numbers: weights and inputs in 8 bits, exact sums, a step for each output and each position."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.eight_bits import rounded
from glassformer.parts.opaque import int8_product


class Int8Linear(nn.Module):
    """y = (P Q^T) * step(x) * step(W) + b, with P * step(x) the input and Q * step(W) the weight, to half a step.

    Each row of W has a step of its own and each position of x (`rounded`). The sum of products of whole numbers is
    exact, so what a position gets hangs on no other. Weights have a quarter of the bytes of float32, and are laid out
    for the product once. Nothing is learned, and no gradient goes through it.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        """Rounds a map's weights. Errors: `DataError` for weights that are not finite."""
        super().__init__()
        whole, step = rounded(weight.detach().float())
        if not bool(step.isfinite().all()):
            raise DataError(
                "Only finite weights can be written in 8 bits; got NaN or infinity. Is the checkpoint whole?"
            )
        packed = torch.ops.onednn.qlinear_prepack(whole, None)
        self.packed, self.step, self.zeros = packed, step[:, 0], torch.zeros(len(step), dtype=torch.int32)
        self.bias = torch.zeros(len(step)) if bias is None else bias.detach().float()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position, in the dtype of x."""
        whole, step = rounded(x.reshape(-1, x.shape[-1]).float())
        y = int8_product(whole, self.packed, self.step, self.zeros)
        y = torch.addcmul(self.bias, y, step, out=y)
        return y.to(x.dtype).view(*x.shape[:-1], -1)
