"""Position schemes, by name."""

from __future__ import annotations

from glassformer.nn.positions.absolute import Learned, Sinusoidal, SinusoidalHalves
from glassformer.nn.positions.bias import Alibi
from glassformer.nn.positions.buckets import Buckets
from glassformer.nn.positions.frequencies import ROTARY_SCALINGS
from glassformer.nn.positions.relative import Shaw
from glassformer.nn.positions.rotary import ROTARY_LAYOUTS, Rotary, rotate
from glassformer.nn.positions.scheme import Positions, Relation, Room, Rotation

__all__ = ["POSITIONS", "ROTARY_LAYOUTS", "ROTARY_SCALINGS", "Positions", "Relation", "Room", "Rotation", "rotate"]

POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "t5": Buckets,
    "shaw": Shaw,
    "none": Positions,
}
