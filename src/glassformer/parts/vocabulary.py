"""Tokens in, logits out: the embedding and the head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Float, Int, Tensor


class Embedding(nn.Module):
    """A vector for each token, times `scale` (Vaswani et al. 2017, section 3.4: sqrt(d_model))."""

    def __init__(self, vocab_size: int, d_model: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = scale

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The vectors. Errors: `DataError` naming the first id outside the vocabulary by row and column."""
        if tokens.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere the look would cost a wait
            check_tokens(tokens, self.weight.shape[0])
        vectors = F.embedding(tokens, self.weight)
        return vectors if self.scale == 1.0 else vectors * self.scale


class Head(nn.Module):
    """logits = x W^T + b; W may be the embedding's matrix (Press and Wolf 2017)."""

    def __init__(self, vocab_size: int, d_model: int, *, bias: bool = False, tied: Embedding | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model)) if tied is None else tied.weight
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where V"]:
        """A score for each token of the vocabulary."""
        return F.linear(x, self.weight, self.bias)


def check_tokens(tokens: Int[Tensor, "B T"], vocab_size: int) -> None:
    """Raises `DataError` for an id outside 0 .. vocab_size - 1, naming its row and column."""
    if tokens.numel() == 0:
        return
    smallest, largest = torch.aminmax(tokens)
    if smallest >= 0 and largest < vocab_size:
        return
    row, column = ((tokens < 0) | (tokens >= vocab_size)).nonzero()[0].tolist()
    raise DataError(
        f"A token id must be at least 0 and below the vocabulary's size, {vocab_size}; "
        f"got {tokens[row, column].item()} at row {row}, column {column}. "
        "Encode the text with the tokenizer that belongs to this model."
    )
