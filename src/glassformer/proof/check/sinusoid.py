"""The sinusoidal table of the paper's section 3.5, right and with known mistakes."""

from __future__ import annotations

import math

import torch

from glassformer.base.shapes import Tensor
from glassformer.nn.positions.absolute import Sinusoidal
from glassformer.nn.positions.scheme import Room
from glassformer.proof.check.reading import Choice
from glassformer.proof.check.table import Mistake

LENGTH, WIDTH = 9, 12

SWAPPED = Mistake(
    "sine and cosine are swapped",
    "Even columns hold the cosine and odd ones the sine.",
    "At position 0, what must the first number be?",
)
HALVES = Mistake(
    "sines and cosines stand in halves",
    "All sines come first and all cosines after them, though the two of a pair must be neighbours.",
    "In section 3.5 of the paper, which column holds the cosine that belongs to column 0?",
)
EXPONENT = Mistake(
    "the exponent is wrong",
    "The wavelengths do not grow as the paper's: the index of the pair, or its factor 2, enters wrongly.",
    "For the last pair of columns, what is your exponent? It is just below 1 in the paper.",
)
PAIRS = Mistake(
    "sine and cosine of a pair have different wavelengths",
    "The exponent is computed from the column, so that it differs between the two columns of a pair.",
    "In section 3.5 of the paper, do 2i and 2i+1 both stand in the exponent?",
)
BASE = Mistake(
    "the base is not 10,000",
    "The wavelengths go up to another length than the paper's.",
    "Count the zeros.",
)
SIGN = Mistake(
    "the angle is multiplied by the power instead of divided",
    "Later columns turn faster instead of slower.",
    "Should neighbouring positions look alike in the last columns?",
)
OFF = Mistake(
    "positions are off by one",
    "The first position is not 0.",
    "At position 0 the paper's angles are all 0. What are yours?",
)


def table(length: int, width: int) -> Tensor:
    """Return our table, which is the documented one."""
    positions = torch.arange(length)
    made = Sinusoidal(Room(width, 1, width, None)).embedding(positions, torch.zeros((), dtype=torch.float64))
    assert made is not None
    return made


def exponents(pairs: Tensor, how: str) -> Tensor:
    """Return the exponents of the wavelengths, by the number i of the pair."""
    ways = {
        "2i/D": 2 * pairs / WIDTH,
        "i/D": pairs / WIDTH,
        "4i/D": 4 * pairs / WIDTH,
        "i": pairs,
        "2i": 2 * pairs,
        "2i/(D-2)": 2 * pairs / (WIDTH - 2),
    }
    return ways[how]


def variant(layout: str, exponent: str, base: float, sign: int, start: int) -> Tensor:
    """Return the table under a reading."""
    if (layout, exponent, base, sign, start) == ("alternate", "2i/D", 10_000.0, 1, 0):
        return table(LENGTH, WIDTH)
    position = torch.arange(start, start + LENGTH, dtype=torch.float64)[:, None]
    pairs = torch.arange(WIDTH // 2, dtype=torch.float64)
    if exponent in ("by column", "by column over D/2"):
        power = torch.arange(WIDTH, dtype=torch.float64) / WIDTH * (2 if exponent.endswith("D/2") else 1)
        odd = torch.arange(WIDTH) % 2 == (layout != "swapped")
        angle = position * base ** (-sign * power)
        return torch.where(odd, angle.cos(), angle.sin())
    angle = position * base ** (-sign * exponents(pairs, exponent))
    if layout == "halves":
        return torch.cat([angle.sin(), angle.cos()], -1)
    both = [angle.cos(), angle.sin()] if layout == "swapped" else [angle.sin(), angle.cos()]
    return torch.stack(both, -1).flatten(1)


ASPECTS = {
    "layout": [
        Choice("alternate"),
        Choice("swapped", "cosines at even columns", SWAPPED),
        Choice("halves", "sines first, then cosines", HALVES),
    ],
    "base": [
        Choice(10_000.0),
        *(Choice(base, f"the base {base:,.10g}", BASE) for base in (10.0, 100.0, 1_000.0, 100_000.0, math.e)),
    ],
    "exponent": [
        Choice("2i/D"),
        Choice("by column", "an exponent from the column, c/D", PAIRS),
        Choice("by column over D/2", "an exponent from the column, 2c/D", PAIRS),
        *(Choice(how, f"the exponent {how}", EXPONENT) for how in ("i/D", "4i/D", "i", "2i", "2i/(D-2)")),
    ],
    "sign": [Choice(1), Choice(-1, "angles times the power", SIGN)],
    "start": [Choice(0), Choice(1, "positions from 1", OFF), Choice(-1, "positions from -1", OFF)],
}
