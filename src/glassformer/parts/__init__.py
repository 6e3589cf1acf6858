"""Floor 2: the parts of a transformer as modules, one idea a file; and the registries of their variants."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import nn

from glassformer.foundation.shapes import Tensor
from glassformer.parts.attention import Attention
from glassformer.parts.block import Block
from glassformer.parts.cache import Cache
from glassformer.parts.dropout import Dropout
from glassformer.parts.feed_forward import FeedForward, gelu_tanh
from glassformer.parts.inputs import FeatureMap
from glassformer.parts.norm import LayerNorm
from glassformer.parts.pooling import POOLINGS
from glassformer.parts.positions import POSITIONS, Positions
from glassformer.parts.residual import PLACEMENTS, Residual
from glassformer.parts.vocabulary import Embedding, Head, check_tokens

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "PLACEMENTS",
    "POOLINGS",
    "POSITIONS",
    "Attention",
    "Block",
    "Cache",
    "Dropout",
    "Embedding",
    "FeatureMap",
    "FeedForward",
    "Head",
    "Positions",
    "Residual",
    "check_tokens",
]

NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh}
