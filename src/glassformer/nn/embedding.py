"""What a stack reads, as vectors: tokens, features, and the parts of a text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.part import Part
from glassformer.base.shapes import Float, Int, Tensor


class Embedding(Part):
    """A vector for each token, times `scale` (Vaswani et al. 2017, section 3.4: sqrt(d_model))."""

    def __init__(self, vocab_size: int, d_model: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = scale

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look up the vectors. Errors: `DataError` with the row and column of the first id outside the vocabulary."""
        try:
            vectors = F.embedding(tokens, self.weight)
        except IndexError:  # on a CPU; elsewhere nobody waits for the device to see it
            check_tokens(tokens, self.weight.shape[0])
            raise
        return vectors if self.scale == 1.0 else vectors * self.scale


def check_tokens(tokens: Int[Tensor, "B T"], vocab_size: int) -> None:
    """Raise `DataError` for the first id outside 0 .. vocab_size - 1, with its row and column."""
    if tokens.numel() == 0:
        return
    smallest, largest = torch.stack(torch.aminmax(tokens)).tolist()  # one wait for an accelerator
    if smallest >= 0 and largest < vocab_size:
        return
    row, column = ((tokens < 0) | (tokens >= vocab_size)).nonzero()[0].tolist()
    raise DataError(
        f"A token id must be at least 0 and below the vocabulary's size, {vocab_size}; "
        f"got {tokens[row, column].item()} at row {row}, column {column}. "
        "Encode the text with the tokenizer that belongs to this model."
    )


class FeatureMap(Part):
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


class Segments(Part):
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
