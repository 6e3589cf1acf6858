"""Normalisation of vectors: of the residual stream, or of queries and keys.

>>> from glassformer import NORMS
>>> NORMS["rms"](8, 1e-5)(torch.ones(2, 8)).shape
torch.Size([2, 8])
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ArgumentError
from glassformer.base.part import Part
from glassformer.base.runtime import autocast_dtype
from glassformer.base.shapes import Float, Tensor


class LayerNorm(Part):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis (Ba, Kiros and Hinton 2016, equation 4).

    Under autocast the result has autocast's dtype: otherwise each linear map that reads it would make its own copy.

    >>> LayerNorm(4, eps=0.0)(torch.tensor([1.0, 3.0, 1.0, 3.0])).tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The normalised vectors."""
        y = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return as_autocast(y)


class RMSNorm(Part):
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich 2019, equation 4).

    It subtracts no mean and adds no bias. The root is computed in float32 or wider, and the quotient is rounded to the
    dtype of x before it is multiplied by the weight, as in the training of Llama's published weights. Under autocast,
    as `LayerNorm`.

    >>> RMSNorm(4, eps=0.0)(torch.tensor([2.0, -2.0, 2.0, 2.0])).tolist()
    [1.0, -1.0, 1.0, 1.0]
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The normalised vectors."""
        if not x.is_floating_point():
            raise ArgumentError(f"x of RMSNorm must be floats; got {x.dtype}.")
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        y = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return as_autocast(y.to(x.dtype) * self.weight.expand_as(x))  # unlike `*`, it refuses vectors of one number


def as_autocast(y: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
    """Convert y to autocast's dtype, if autocast is on."""
    narrow = autocast_dtype(y.device.type)
    return y if narrow is None else y.to(narrow)


NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm, "none": nn.Identity}
"""Each makes a norm from the width and eps."""
