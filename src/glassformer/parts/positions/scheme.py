"""Where order enters the network: each scheme overrides one of four methods, and attention never asks which."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import nn

from glassformer.attend import Mask
from glassformer.foundation.order import RelativeConfig, RotaryConfig
from glassformer.foundation.shapes import Float, Int, Tensor


class Rotation(NamedTuple):
    """What queries and keys are turned by: one angle for each position and pair of numbers."""

    cos: Float[Tensor, "*batch T pairs"]
    sin: Float[Tensor, "*batch T pairs"]
    layout: str = "half"
    """Which numbers of a head make a pair; a name in `ROTARY_LAYOUTS`."""


class Room(NamedTuple):
    """The sizes and settings that a scheme may need."""

    d_model: int
    n_heads: int
    d_head: int
    max_len: int | None
    causal: bool = False
    rotary: RotaryConfig = RotaryConfig()
    relative: RelativeConfig = RelativeConfig()


class Relation(nn.Module, ABC):
    """What a scheme adds in one layer alone, with parameters of that layer; its self-attention holds it."""

    @abstractmethod
    def forward(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float) -> Mask:
        """The mask with what is to be added to scores and values; it knows where queries and keys stand."""


class Positions(nn.Module):
    """No order at all: attention then sees a set."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self.room = room

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"] | None:
        """What is added to the token embeddings, in the dtype of `like`; None: nothing."""
        del positions, like
        return None

    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation | None:
        """What queries and keys are turned by, in the dtype of `like`; None: nothing."""
        del positions, like
        return None

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"] | None:
        """What is added to the attention scores of every layer, in the dtype of `like`; None: nothing."""
        del queries, keys, like
        return None

    def relation(self) -> Relation | None:
        """A new module for one layer, where a scheme depends on the queries of each; None: nothing."""
        return None
