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
        return self.laid_out(angle.sin(), angle.cos())[..., : self.room.d_model].to(like.dtype)

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """Sines and cosines of all P = ceil(D/2) speeds in one vector, sine and cosine of a speed side by side."""
        return torch.stack([sin, cos], dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same numbers in another order, first all sines and then all cosines, as Marian has them.

    So does the code that Vaswani et al. 2017 published (tensor2tensor), at slightly other speeds. What is learned from
    either order is the same but for the order of the numbers in a vector.
    """

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """All sines, then all cosines."""
        return torch.cat([sin, cos], dim=-1)


class Learned(Positions):
    """A learned vector for each position below max_len (Gehring et al. 2017, section 3.1)."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        assert room.max_len is not None, "StackConfig refuses learned positions without max_len"
        self.weight = nn.Parameter(torch.empty(room.max_len, room.d_model))

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors of the positions."""
        return self.weight[positions].to(like.dtype)
