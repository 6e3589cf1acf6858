"""Where order enters the network: each scheme overrides one of three methods, and attention never asks which."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from glassformer.foundation.shapes import Float, Int, Tensor

Rotation = tuple[Tensor, Tensor]
"""(cos, sin), each [T, K] or [B, T, K]: what queries and keys are turned by."""


class Room(NamedTuple):
    """The sizes that a scheme may need."""

    d_model: int
    n_heads: int
    d_head: int
    max_len: int | None


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
        """What is added to the attention scores, in the dtype of `like`; None: nothing."""
        del queries, keys, like
        return None
