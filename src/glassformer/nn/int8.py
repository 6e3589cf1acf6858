"""A linear map with weights and inputs quantised to 8 bits, for decoding on a CPU."""

from __future__ import annotations

from typing import Any

from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.fast.native import in_pieces, write_heads
from glassformer.nn.eight_bits import rounded
from glassformer.nn.native_map import NativeMap


class Int8Linear(nn.Module):
    """y = (P Q^T) * step(x) * step(W) + b, where P * step(x) is the input and Q * step(W) the weight, to half a step.

    Each row of W and each position of x has its own step (`rounded`). Sums of products of whole numbers are exact, so
    the result of one position does not depend on the others, nor on the machine. Weights take a quarter of the bytes of
    float32 and are laid out once for our C++ (whole.h), which is compiled before, if need be. It has no parameters and
    passes no gradient.
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
        self.n_outputs, self.n_inputs = weight.shape
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        self.weight, self.step = in_pieces(whole), step[:, 0].contiguous()
        self.bias = None if bias is None else bias.detach().float().contiguous()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A model may have been pickled on another processor."""
        super().__setstate__(state)
        write_heads(self.weight)

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """Apply the map at each position; the result has the dtype of x."""
        return self._map(x, self.weight, self.step, self.bias).to(x.dtype)
