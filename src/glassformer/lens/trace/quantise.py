"""Attention weights as few bytes, and back.

| encoding | bytes a weight | largest error | what becomes 0 |
| sqrt255 | 1 | 0.004, and 1e-5 where weights are small | below 1e-6 |
| u16 | 2 | 0.000008 | below 0.000008 |
| f32 | 4 | none | nothing |

The square root spends the 256 levels where weights of a softmax are: near 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.foundation.registry import lookup

Array = NDArray[Any]


class Encoding(NamedTuple):
    """How numbers become the elements of a buffer, and what each element says."""

    dtype: str
    """As numpy writes it; always little-endian."""
    encode: Callable[[Array], Array]
    decode: Callable[[Array], Array]


def _as_float(stored: Array) -> Array:
    return stored.astype(np.float32)


def _root(weights: Array) -> Array:
    return np.rint(255 * np.sqrt(weights))


def _square(stored: Array) -> Array:
    return np.square(_as_float(stored) / 255)


def _share(weights: Array) -> Array:
    return np.rint(65535 * weights)


def _of_share(stored: Array) -> Array:
    return _as_float(stored) / 65535


def _same(numbers: Array) -> Array:
    return numbers


ENCODINGS: dict[str, Encoding] = {
    "sqrt255": Encoding("|u1", _root, _square),
    "u16": Encoding("<u2", _share, _of_share),
    "f32": Encoding("<f4", _same, _as_float),
    "flag": Encoding("|u1", _same, _same),
}
"""`flag`: 1 for yes, 0 for no."""


def encode(numbers: Array, encoding: str) -> Array:
    """The elements to store. Weights of `sqrt255` and `u16` lie from 0 to 1. Errors: `ConfigError` for the name."""
    chosen = lookup(ENCODINGS, encoding, "encoding")
    return chosen.encode(numbers).astype(chosen.dtype)


def decode(stored: Array, encoding: str) -> Array:
    """The numbers that the elements stand for."""
    return lookup(ENCODINGS, encoding, "encoding").decode(stored)


def brief(value: float) -> float:
    """Six significant digits: what is shown has fewer."""
    return float(f"{value:.6g}")
