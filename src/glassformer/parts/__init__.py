"""Floor 2: the parts of a transformer as modules, one idea per file, and the registries of their variants."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.shapes import Tensor
from glassformer.parts.activation import gelu_tanh, identity, relu_squared
from glassformer.parts.attention import Attention
from glassformer.parts.block import Block
from glassformer.parts.cache import Cache
from glassformer.parts.dropout import Dropout
from glassformer.parts.experts import EXPERTS, Experts
from glassformer.parts.feed_forward import FeedForward, GatedFeedForward
from glassformer.parts.inputs import FeatureMap
from glassformer.parts.norm import LayerNorm, RMSNorm
from glassformer.parts.pooling import POOLINGS
from glassformer.parts.positions import POSITIONS, Positions, Relation
from glassformer.parts.residual import PLACEMENTS, Residual
from glassformer.parts.rolling import RollingCache
from glassformer.parts.rounded import rounding_cache
from glassformer.parts.segments import Segments
from glassformer.parts.slots import Slots
from glassformer.parts.state import StateCache
from glassformer.parts.state_slots import StateSlots
from glassformer.parts.stochastic_depth import drop_chance
from glassformer.parts.vocabulary import Embedding, Head, HeadTransform, check_tokens
from glassformer.parts.watch import Attended, attentions, watch_attention

__all__ = [
    "ACTIVATIONS",
    "EXPERTS",
    "FEED_FORWARDS",
    "NORMS",
    "PLACEMENTS",
    "POOLINGS",
    "POSITIONS",
    "Attended",
    "Attention",
    "Block",
    "Cache",
    "Dropout",
    "Embedding",
    "Experts",
    "FeatureMap",
    "FeedForward",
    "GatedFeedForward",
    "Head",
    "HeadTransform",
    "Positions",
    "Relation",
    "Residual",
    "RollingCache",
    "Segments",
    "Slots",
    "StateCache",
    "StateSlots",
    "attentions",
    "check_tokens",
    "drop_chance",
    "rounding_cache",
    "watch_attention",
]

NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm, "none": nn.Identity}
"""Each makes a norm from the width and eps."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "relu_squared": relu_squared,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}
FEED_FORWARDS: dict[str, Callable[..., nn.Module]] = {
    "plain": FeedForward,
    "gated": GatedFeedForward,
    "experts": Experts,
}
"""Each makes a branch from (d_model, d_ff, activation, dropout=, bias=); experts also need `StackConfig.routing`."""
