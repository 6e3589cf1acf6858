"""Order as an angle: queries and keys are turned by their position, so a score depends on the distance alone."""

from __future__ import annotations

import math

import torch

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.parts.positions.scheme import Positions, Room, Rotation


class Rotary(Positions):
    """R(p) q . R(s) k = q . R(s - p) k, with angles p * 10000^(-2i/K) (Su et al. 2021, equation 15).

    Number i of a head is turned together with number i + K/2, the layout of Llama's published weights.
    """

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        if room.d_head % 2:
            raise ConfigError(
                f"positions='rotary' turns the numbers of a head in pairs, so d_head must be even; got {room.d_head}. "
                f"Try d_head={room.d_head + 1}."
            )

    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation:
        """cos and sin of each position's angles, each written twice, once a half."""
        wide, K = torch.promote_types(like.dtype, torch.float32), self.room.d_head
        even = torch.arange(0, K, 2, device=positions.device, dtype=wide)
        angle = positions[..., None].to(wide) * torch.exp(even * (-math.log(10_000.0) / K))
        angle = torch.cat([angle, angle], dim=-1)
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(x: Float[Tensor, "B H T K"], rotation: Rotation | None) -> Float[Tensor, "B H T K"]:
    """x with its two halves turned against each other: (a, b) -> (a cos - b sin, b cos + a sin)."""
    if rotation is None:
        return x
    cos, sin = (part if part.ndim == 2 else part[:, None] for part in rotation)
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin
