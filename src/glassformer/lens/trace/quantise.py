"""Storing attention weights in few bytes, and decoding them.

| encoding | bytes per weight | largest error | what becomes 0 |
| sqrt255 | 1 | 0.004, and 1e-5 where weights are small | below 1e-6 |
| u16 | 2 | 0.000008 | below 0.000008 |
| f32 | 4 | none | nothing |

The square root puts most of the 256 levels near 0, where most weights of a softmax are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.registry import lookup

Array = NDArray[Any]


class Encoding(NamedTuple):
    """How numbers become the elements of a buffer, and back."""

    dtype: str
    """In numpy's notation; always little-endian."""
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
    """Return the elements to store; `sqrt255` and `u16` need weights in [0, 1]. Errors: `ConfigError` for the name."""
    chosen = lookup(ENCODINGS, encoding, "encoding")
    return chosen.encode(numbers).astype(chosen.dtype)


def decode(stored: Array, encoding: str) -> Array:
    """Return the numbers that the elements encode."""
    return lookup(ENCODINGS, encoding, "encoding").decode(stored)


def brief(value: float) -> float:
    """Round to six significant digits, more than is ever shown."""
    return float(f"{value:.6g}")
