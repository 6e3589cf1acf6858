"""Rotary positions: queries and keys are rotated by their position, so scores depend only on their distance."""

from __future__ import annotations

from collections.abc import Callable

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.positions.frequencies import ROTARY_SCALINGS, attention_factor
from glassformer.nn.positions.scheme import Positions, Rotation


class Rotary(Positions):
    """R(p) q . R(s) k = q . R(s - p) k, with angles p * speed_i (Su et al. 2021, equation 15)."""

    def rotation(self, positions: Int[Tensor, "*batch T"], like: Tensor) -> Rotation:
        """cos and sin of each position's angles, times YaRN's factor; computed in high precision and rounded once."""
        settings = self.room.rotary
        scaled = ROTARY_SCALINGS[settings.scaling](settings, settings.width(self.room.d_head), positions.device)
        angle, factor = positions[..., None].to(scaled.dtype) * scaled, attention_factor(settings)
        cos, sin = ((part * factor).to(like.dtype) for part in (angle.cos(), angle.sin()))
        return Rotation(cos, sin, settings.layout)


Pair = tuple[Tensor, Tensor]
"""The first numbers of all pairs and the second ones, each half as wide as the rotated vector."""


def halves(x: Float[Tensor, "*where R"]) -> Pair:
    """Pair number i with number i + R/2, the layout of Llama's published weights."""
    first, second = x.chunk(2, dim=-1)
    return first, second


def join_halves(pair: Pair) -> Float[Tensor, "*where R"]:
    """The inverse of `halves`."""
    return torch.cat(pair, dim=-1)


def neighbours(x: Float[Tensor, "*where R"]) -> Pair:
    """Pair number 2i with number 2i + 1, the layout of the paper and of GPT-J."""
    return x[..., 0::2], x[..., 1::2]


def join_neighbours(pair: Pair) -> Float[Tensor, "*where R"]:
    """The inverse of `neighbours`."""
    return torch.stack(pair, dim=-1).flatten(-2)


ROTARY_LAYOUTS: dict[str, tuple[Callable[[Tensor], Pair], Callable[[Pair], Tensor]]] = {
    "half": (halves, join_halves),
    "interleaved": (neighbours, join_neighbours),
}


def rotate(x: Float[Tensor, "B H T K"], rotation: Rotation | None) -> Float[Tensor, "B H T K"]:
    """Rotate the pairs (a, b) of x to (a cos - b sin, b cos + a sin); numbers beyond the pairs stay unchanged."""
    if rotation is None:
        return x
    cos, sin = (part if part.ndim == 2 else part[:, None] for part in rotation[:2])
    split, join = ROTARY_LAYOUTS[rotation.layout]
    R = 2 * cos.shape[-1]
    a, b = split(x[..., :R])
    turned = join((a * cos - b * sin, b * cos + a * sin))
    return turned if x.shape[-1] == R else torch.cat([turned, x[..., R:]], dim=-1)
