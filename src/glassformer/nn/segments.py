"""Segment embeddings: a vector for each part of a text, for example a question and its passage."""

from __future__ import annotations

import torch
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Int, Tensor


class Segments(nn.Module):
    """A learned vector for each part, added to the embedding of its tokens (Devlin et al. 2019, figure 2)."""

    def __init__(self, n_segments: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_segments, d_model))

    def forward(self, segments: Int[Tensor, "B T"] | None, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the vector of each token's part to x. None: all belong to part 0. Errors: as `check_segments`."""
        if segments is None:
            return x + self.weight[0]
        check_segments(segments, x, len(self.weight))
        return x + self.weight[segments]


def check_segments(segments: Int[Tensor, "B T"], x: Float[Tensor, "B T D"], n_segments: int) -> None:
    """Raise `DataError` unless segments has one number per token, each from 0 to n_segments - 1."""
    if segments.shape != x.shape[:2]:
        raise DataError(
            f"segments says which part each token belongs to, so it must have the shape of the tokens, "
            f"{list(x.shape[:2])}; got {list(segments.shape)}. Give one number for each token, padding included."
        )
    if segments.device.type != "cpu" or torch.compiler.is_compiling():  # elsewhere checking would wait for the device
        return
    wrong = ((segments < 0) | (segments >= n_segments)).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"A segment must be at least 0 and below n_segments={n_segments}; got {segments[row, column].item()} at "
            f"row {row}, column {column}. Number the parts of a text from 0, padding included."
        )
