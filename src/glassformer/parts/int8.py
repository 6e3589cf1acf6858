"""A linear map with weights and inputs quantised to 8 bits, for decoding on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.foundation.errors import DataError
from glassformer.foundation.runtime import has_int8
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.eight_bits import rounded
from glassformer.parts.native import has_cpp, in_pieces, product
from glassformer.parts.opaque import int8_product, native_product

FEW = 32
"""Up to this many positions our own product is used even where the processor multiplies 8-bit numbers: reading the
weights takes the time, and a step in C++ needs no other operations of torch."""


class Int8Linear(nn.Module):
    """y = (P Q^T) * step(x) * step(W) + b, where P * step(x) is the input and Q * step(W) the weight, to half a step.

    Each row of W and each position of x has its own step (`rounded`). Sums of products of whole numbers are exact, so
    the result of one position does not depend on the others. Weights take a quarter of the bytes of float32 and are
    packed once: for our own product (whole.h), which is compiled at the first call, and, where the processor multiplies
    8-bit numbers (`has_int8`), for oneDNN's, which is faster there for many positions. It has no parameters and passes
    no gradient.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        """Quantises the weights of a linear map. Errors: `DataError` for weights that are not finite."""
        super().__init__()
        whole, step = rounded(weight.detach().float())
        if not bool(step.isfinite().all()):
            raise DataError(
                "Only finite weights can be stored in 8 bits; got NaN or infinity. The checkpoint may be damaged: use "
                "another one."
            )
        self.width, self.hardware = weight.shape[1], has_int8(whole.device)
        self.packed = torch.ops.onednn.qlinear_prepack(whole, None) if self.hardware else None
        self.pieces = in_pieces(whole) if not self.hardware or has_cpp() else None
        self.step, self.zeros = step[:, 0].contiguous(), torch.zeros(len(step), dtype=torch.int32)
        self.bias = (torch.zeros_like(self.step) if bias is None else bias.detach().float()).contiguous()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """Apply the map at each position; the result has the dtype of x."""
        positions, compiling = x.reshape(-1, x.shape[-1]).float(), torch.compiler.is_compiling()
        if self.pieces is None or (self.hardware and (compiling or len(positions) > FEW)):
            whole, step = rounded(positions)
            y = int8_product(whole, self.packed, self.step, self.zeros)
            y = torch.addcmul(self.bias, y, step, out=y)
        else:
            multiply = native_product if compiling else product
            y = multiply(positions, self.pieces, self.step, self.bias, len(self.step))
        return y.to(x.dtype).view(*x.shape[:-1], len(self.step))
