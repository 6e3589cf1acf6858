"""Normalisation of the residual stream."""

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

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The normalised vectors."""
        y = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        device = x.device.type
        return y.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else y
