"""Absolute positions: one vector per position, added to the token embeddings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.positions.frequencies import speeds
from glassformer.nn.positions.scheme import Positions, Room


class Sinusoidal(Positions):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (Vaswani et al. 2017, section 3.5).

    Vectors are computed for the given positions, so any length works. For an odd D the last cosine is left out.
    """

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors, in the dtype of `like`; angles are computed in float64 if the device has it."""
        turns = speeds(math.log(10_000.0), self.room.d_model, positions.device)
        angle = positions[..., None].to(turns.dtype) * turns
        return self.laid_out(angle.sin(), angle.cos())[..., : self.room.d_model].to(like.dtype)

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """Join sines and cosines of all P = ceil(D/2) frequencies, with each frequency's sine and cosine adjacent."""
        return torch.stack([sin, cos], dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same numbers in another order: first all sines, then all cosines, as in Marian.

    The code published by Vaswani et al. 2017 (tensor2tensor) does the same, with slightly different frequencies. Models
    learn equally from either order: only the order of the numbers in a vector differs.
    """

    def laid_out(self, sin: Float[Tensor, "*where P"], cos: Float[Tensor, "*where P"]) -> Float[Tensor, "*where Q"]:
        """Join all sines, then all cosines."""
        return torch.cat([sin, cos], dim=-1)


class Learned(Positions):
    """A learned vector for each position below max_len (Gehring et al. 2017, section 3.1)."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        assert room.max_len is not None, "StackConfig refuses learned positions without max_len"
        self.weight = nn.Parameter(torch.empty(room.max_len, room.d_model))

    def embedding(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Float[Tensor, "*batch T D"]:
        """The vectors of the positions."""
        return F.embedding(positions, self.weight).to(like.dtype)
