"""The embedding, from tokens to vectors, and the head, from vectors to logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Int, Tensor

NEVER = -1e4
"""The logit bias of a token that is never predicted: probability 0 in every dtype, and finite, as weights must be."""


class Embedding(nn.Module):
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


class HeadTransform(nn.Module):
    """norm(activation(x W^T + b)), applied before the head's matrix, as in BERT's masked LM (Devlin et al. 2019)."""

    def __init__(self, d_model: int, activation: Callable[[Tensor], Tensor], norm: nn.Module) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = activation
        self.norm = norm

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position."""
        return self.norm(self.activation(self.dense(x)))


class Head(nn.Module):
    """logits = scale t(x) W^T + b; W may be the embedding's matrix (Press and Wolf 2017).

    The tokens `silent` are never predicted: b is `NEVER` for them, 0 for all others, and not learned. `transform` is t,
    by default the identity. `scale` is 1/sqrt(d_model) in T5, because its tied matrix has numbers of
    an embedding's size (Raffel et al. 2020, the code of its models). Decoding may set `faster`, a map in place
    of x W^T + b.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        bias: bool = False,
        silent: Sequence[int] = (),
        tied: Embedding | None = None,
        scale: float = 1.0,
        transform: HeadTransform | None = None,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model)) if tied is None else tied.weight
        self.bias: Tensor | None = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.silent = bool(silent)
        if silent:
            fixed = torch.zeros(vocab_size)
            fixed[[*silent]] = NEVER
            del self.bias
            self.register_buffer("bias", fixed)
        self.faster: nn.Module | None = None

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where V"]:
        """Return the logits: a score for each token of the vocabulary."""
        x = self.turned(x)
        return F.linear(x, self.weight, self.bias) if self.faster is None else self.faster(x)

    def prior(self) -> Float[Tensor, " V"] | None:
        """What label smoothing mixes in: the same share for each token that is not silent; None: for all."""
        if not self.silent or self.bias is None:
            return None
        spoken = (self.bias == 0).to(self.bias.dtype)
        return spoken / spoken.sum()

    def turned(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """scale t(x), the vector that W is multiplied by."""
        if self.transform is not None:
            x = self.transform(x)
        return x if self.scale == 1.0 else x * self.scale


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
