"""Continuous inputs: vectors of features instead of tokens, for example from audio, sensors or a game's state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor


class FeatureMap(nn.Module):
    """x W^T + b: maps n_features numbers per place to the stack's width (Dosovitskiy et al. 2021, equation 1).

    It replaces the `Embedding` of a stack that reads tokens; positions, masks and padding work as for tokens.
    """

    def __init__(self, n_features: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, n_features))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "B T I"]) -> Float[Tensor, "B T D"]:
        """Map the features, in the weight's dtype. Errors: `DataError` for another number of them, or NaN."""
        check_features(x, self.weight.shape[1])
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


def check_features(x: Float[Tensor, "B T I"], n_features: int) -> None:
    """Raises `DataError` for a wrong width, or for the first value that is not finite (its row, place and feature).

    Padding must be finite too: hidden values get weight 0, and 0 times NaN is NaN.
    """
    if x.ndim != 3 or x.shape[-1] != n_features:
        raise DataError(
            f"Features must have the shape [batch, positions, {n_features}], as n_features={n_features}; got "
            f"{list(x.shape)}. Give {n_features} numbers for each position, or make a model with another n_features."
        )
    if x.device.type != "cpu" or torch.compiler.is_compiling():  # elsewhere checking would wait for the device
        return
    wrong = (~x.isfinite()).nonzero()
    if len(wrong):
        row, place, feature = wrong[0].tolist()
        raise DataError(
            f"Features must be finite numbers, in padding too; got {x[row, place, feature].item()} at row {row}, "
            f"place {place}, feature {feature} (counted from 0). Correct the data, or remove the row."
        )
