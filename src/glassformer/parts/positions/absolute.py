"""Order added to the embedding: one vector a position."""

from __future__ import annotations

import math

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.parts.positions.scheme import Positions, Room


class Sinusoidal(Positions):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (Vaswani et al. 2017, section 3.5).

    Computed for the positions asked for, so any length works; for an odd D the last cosine is left out.
    """

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors, in the dtype of `like`; the angles are computed in float32 at least."""
        wide = torch.promote_types(like.dtype, torch.float32)
        even = torch.arange(0, self.room.d_model, 2, device=positions.device, dtype=wide)
        angle = positions[..., None].to(wide) * torch.exp(even * (-math.log(10_000.0) / self.room.d_model))
        pairs = torch.stack([angle.sin(), angle.cos()], dim=-1)  # [..., T, ceil(D/2), 2]
        return pairs.flatten(-2)[..., : self.room.d_model].to(like.dtype)


class Learned(Positions):
    """A learned vector for each position below max_len (Gehring et al. 2017, section 3.1)."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        assert room.max_len is not None, "StackConfig refuses learned positions without max_len"
        self.weight = nn.Parameter(torch.empty(room.max_len, room.d_model))

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors of the positions."""
        return self.weight[positions].to(like.dtype)
