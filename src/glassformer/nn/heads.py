"""Heads, which turn the last vectors into a model's output. A model has one, chosen by `ModelConfig.head`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.part import Part
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.base.tensors import check_keep, check_shape
from glassformer.nn.config import ModelConfig
from glassformer.nn.embedding import Embedding, FeatureMap
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.norm import NORMS
from glassformer.nn.outputs import Classify, Lm, Regress, Tag

NEVER = -1e4
"""The logit bias of a token that is never predicted: probability 0 in every dtype, and finite, as weights must be."""


class HeadTransform(Part):
    """norm(activation(x W^T + b)), applied before the head's matrix, as in BERT's masked LM (Devlin et al. 2019)."""

    def __init__(self, d_model: int, activation: Callable[[Tensor], Tensor], norm: nn.Module) -> None:
        super().__init__()
        self.d_model = d_model
        self.dense = nn.Linear(d_model, d_model)
        self.activation = activation
        self.norm = norm

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position."""
        return self.norm(self.activation(self.dense(x)))


class Head(Part):
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
        if (largest := max(silent, default=0)) >= vocab_size:
            raise ConfigError(f"silent must be ids of the vocabulary, below {vocab_size}; got {largest}. Remove it.")
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


class First(Part):
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


class Mean(Part):
    """The mean over the real places."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return one vector per row."""
        if keep is None:
            return x.mean(1)
        total = torch.where(keep[:, :, None], x, 0.0).sum(1)
        return total / keep.sum(1, keepdim=True).clamp(min=1)


class AttentionPooling(Part):
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


class SequenceHead(Part):
    """dropout(pooling(x)) W^T + b: label scores or numbers for a whole sequence. Padding never counts."""

    def __init__(self, d_model: int, n_outputs: int, *, pooling: str = "mean", dropout: float = 0.0) -> None:
        super().__init__()
        self.pooling = lookup(POOLINGS, pooling, "pooling")(d_model)
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(n_outputs, d_model))
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B N"]:
        """Return one row of scores or numbers per sequence. `keep` is False at padding; None means no padding."""
        check_keep(keep)
        check_shape("keep", keep, "x", x)
        return F.linear(self.dropout(self.pooling(x, keep)), self.weight, self.bias)


class PlaceHead(Part):
    """dropout(x) W^T + b: a score for each label, or some numbers, at each place."""

    def __init__(self, d_model: int, n_outputs: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(n_outputs, d_model))
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """Return one row of scores or numbers per place."""
        return F.linear(self.dropout(x), self.weight, self.bias)


AnyHead = Head | SequenceHead | PlaceHead


def _lm(config: ModelConfig, embedding: Embedding | FeatureMap) -> Head:
    assert config.vocab_size is not None
    tied = embedding if config.tie_embeddings and isinstance(embedding, Embedding) else None
    D = config.stack.d_model
    scale = D**-0.5 if config.scale_head else 1.0
    return Head(
        config.vocab_size,
        D,
        bias=config.head_bias,
        silent=config.silent_ids,
        tied=tied,
        scale=scale,
        transform=_transform(config, D),
    )


def _transform(config: ModelConfig, d_model: int) -> HeadTransform | None:
    activation = cast(Lm, config.head).transform
    if activation is None:
        return None
    norm = lookup(NORMS, config.stack.norm, "norm")(d_model, config.stack.norm_eps)
    return HeadTransform(d_model, lookup(ACTIVATIONS, activation, "head.transform"), norm)


def _classify(config: ModelConfig, embedding: Embedding | FeatureMap) -> SequenceHead:
    head = cast(Classify, config.head)
    return SequenceHead(config.stack.d_model, head.n_labels, pooling=head.pooling, dropout=head.dropout)


def _tag(config: ModelConfig, embedding: Embedding | FeatureMap) -> PlaceHead:
    head = cast(Tag, config.head)
    return PlaceHead(config.stack.d_model, head.n_labels, dropout=head.dropout)


def _regress(config: ModelConfig, embedding: Embedding | FeatureMap) -> SequenceHead | PlaceHead:
    head = cast(Regress, config.head)
    if head.pooling == "none":
        return PlaceHead(config.stack.d_model, head.n_numbers, dropout=head.dropout)
    return SequenceHead(config.stack.d_model, head.n_numbers, pooling=head.pooling, dropout=head.dropout)


HEADS: dict[str, Callable[[ModelConfig, Embedding | FeatureMap], AnyHead]] = {
    "lm": _lm,
    "classify": _classify,
    "tag": _tag,
    "regress": _regress,
}
"""Each makes a head from the config and the input map of its stack; keys as in `OUTPUTS`."""
