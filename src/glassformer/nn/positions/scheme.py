"""The base class of position schemes: each overrides one of four methods, and attention never asks which it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import nn

from glassformer.base.order import RelativeConfig, RotaryConfig
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.attend import Mask


class Rotation(NamedTuple):
    """The rotation of queries and keys: one angle for each position and each pair of numbers."""

    cos: Float[Tensor, "*batch T pairs"]
    sin: Float[Tensor, "*batch T pairs"]
    layout: str = "half"
    """Which numbers of a head form a pair; a name in `ROTARY_LAYOUTS`."""


class Room(NamedTuple):
    """The sizes and settings of a stack that a scheme may need."""

    d_model: int
    n_heads: int
    d_head: int
    max_len: int | None
    causal: bool = False
    rotary: RotaryConfig = RotaryConfig()
    relative: RelativeConfig = RelativeConfig()


class Relation(nn.Module, ABC):
    """What a scheme adds in one layer only, with parameters of its own; held by that layer's self-attention."""

    @abstractmethod
    def forward(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B G S K"], mask: Mask, *, scale: float) -> Mask:
        """Return the mask with the biases for scores and values; it gives the positions of queries and keys."""


class Positions(nn.Module):
    """No positions ("none"), and the base of all schemes: attention sees a set, without order."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        self.room = room

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"] | None:
        """Vectors to add to the token embeddings, in the dtype of `like`; None for nothing."""
        del positions, like
        return None

    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation | None:
        """The rotation of queries and keys, in the dtype of `like`; None for no rotation."""
        del positions, like
        return None

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"] | None:
        """Numbers to add to the attention scores of every layer, in the dtype of `like`; None for nothing."""
        del queries, keys, like
        return None

    def relation(self) -> Relation | None:
        """A new module for one layer, for schemes that depend on its queries; None for no module."""
        return None
