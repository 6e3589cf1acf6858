"""Pooling: from the vectors of a sequence to one vector. Padding never counts; a row of only padding gives zeros."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glassformer.base.shapes import Bool, Float, Tensor


class First(nn.Module):
    """The vector of the first real place, e.g. of a token that begins every text (Devlin et al. 2019, section 3)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return one vector per row."""
        if keep is None:
            return x[:, 0]
        place = keep.int().argmax(1)  # argmax returns the first of several equal values
        chosen = x[torch.arange(len(x), device=x.device), place]
        return torch.where(keep.any(1, keepdim=True), chosen, 0.0)


class Mean(nn.Module):
    """The mean over the real places."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return one vector per row."""
        if keep is None:
            return x.mean(1)
        total = torch.where(keep[:, :, None], x, 0.0).sum(1)
        return total / keep.sum(1, keepdim=True).clamp(min=1)


class AttentionPooling(nn.Module):
    """softmax(x q / sqrt(D)) x with one learned query q (Lin et al. 2017, equation 5, one hop, without its tanh layer).

    At initialisation q = 0, so this is the mean.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return one vector per row."""
        scores = x @ self.query * x.shape[-1] ** -0.5
        if keep is None:
            return (scores.softmax(-1)[:, :, None] * x).sum(1)
        blind = ~keep.any(1, keepdim=True)  # these rows keep finite scores (no NaN); their output is zeroed
        weights = torch.where(keep | blind, scores, float("-inf")).softmax(-1)
        weights = torch.where(keep, weights, 0.0)
        return (weights[:, :, None] * torch.where(keep[:, :, None], x, 0.0)).sum(1)


POOLINGS: dict[str, Callable[[int], nn.Module]] = {"first": First, "mean": Mean, "attention": AttentionPooling}
