"""Position schemes, by name."""

from __future__ import annotations

from glassformer.parts.positions.absolute import Learned, Sinusoidal
from glassformer.parts.positions.bias import Alibi
from glassformer.parts.positions.rotary import Rotary, rotate
from glassformer.parts.positions.scheme import Positions, Room, Rotation

__all__ = ["POSITIONS", "Positions", "Room", "Rotation", "rotate"]

POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "alibi": Alibi,
    "none": Positions,
}
