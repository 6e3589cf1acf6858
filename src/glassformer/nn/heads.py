"""Heads, which turn the last vectors into a model's output. A model has one, chosen by `ModelConfig.head`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.nn.activation import ACTIVATIONS
from glassformer.nn.config import ModelConfig
from glassformer.nn.inputs import FeatureMap
from glassformer.nn.norm import NORMS
from glassformer.nn.outputs import Classify, Lm, Regress, Tag
from glassformer.nn.pooling import POOLINGS
from glassformer.nn.vocabulary import Embedding, Head, HeadTransform


class SequenceHead(nn.Module):
    """dropout(pooling(x)) W^T + b: label scores or numbers for a whole sequence. Padding never counts."""

    def __init__(self, d_model: int, n_outputs: int, *, pooling: str = "mean", dropout: float = 0.0) -> None:
        super().__init__()
        self.pooling = lookup(POOLINGS, pooling, "pooling")(d_model)
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(n_outputs, d_model))
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B N"]:
        """Return one row of scores or numbers per sequence. `keep` is False at padding; None means no padding."""
        return F.linear(self.dropout(self.pooling(x, keep)), self.weight, self.bias)


class PlaceHead(nn.Module):
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
    if (largest := max(config.silent_ids, default=0)) >= config.vocab_size:
        raise ConfigError(f"silent must be ids of the vocabulary, below {config.vocab_size}; got {largest}. Remove it.")
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
