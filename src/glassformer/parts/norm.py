"""Normalisation of vectors: of the residual stream, or of queries and keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.shapes import Float, Tensor


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis (Ba, Kiros and Hinton 2016, equation 4).

    Under autocast the result is in the autocast's dtype: the maps that follow read it there, and would each make a
    copy of their own.
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


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich 2019, equation 4).

    Neither mean nor bias. The root is taken in float32 at least; the quotient is rounded to the dtype of x before the
    weight multiplies it, the order in which Llama's published weights were trained. Under autocast as `LayerNorm`.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The normalised vectors."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        y = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return as_autocast(y.to(x.dtype) * self.weight)


def as_autocast(y: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
    """y in the dtype of autocast, where there is one."""
    device = y.device.type
    return y.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else y
