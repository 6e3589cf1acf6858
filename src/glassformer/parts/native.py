"""Our C++ (parts/cpp): what it is told of a model, and how it is called.

The structures here have the fields of those in maps.h and step.cpp, in the same order. An address is valid as long as
its tensor is; so `Described` keeps each tensor that it names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from glassformer.foundation.errors import ConfigError, ResourceError
from glassformer.foundation.native import library
from glassformer.foundation.shapes import Float, Int8, Num, Tensor

CPP = Path(__file__).with_name("cpp") / "step.cpp"
GROUP, PIECE = 4, 16
"""How maps.h reads a matrix in 8 bits: four rows together, sixteen columns at a time."""
FEW = 16
"""Up to this many rows our C++ is faster: reading the weights takes the time. Beyond, torch's product is."""
NUMBERS = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.int8: 2}
"""`Kind` of maps.h: weights in the numbers of the input, in bfloat16, or in 8 bits."""

Fields = list[tuple[str, Any]]


class CMap(ctypes.Structure):
    """`Map` of maps.h."""

    _fields_: ClassVar[Fields] = [
        *((name, ctypes.c_int64) for name in ("kind", "in", "out")),
        *((name, ctypes.c_void_p) for name in ("weight", "step", "bias")),
    ]


def has_cpp() -> bool:
    """Whether our C++ can be used here: there is a compiler, or was, and the cache folder can be used."""
    with suppress(ConfigError, ResourceError):
        return bool(library(CPP))
    return False


def in_pieces(whole: Int8[Tensor, "N D"]) -> Int8[Tensor, "groups pieces 4 16"]:
    """Lay out a matrix in 8 bits in the order in which maps.h reads it, filled up with zeros."""
    N, D = whole.shape
    filled = F.pad(whole, (0, -D % PIECE, 0, -N % GROUP))
    return filled.view(-1, GROUP, filled.shape[1] // PIECE, PIECE).transpose(1, 2).contiguous()


def c_map(weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, width: int) -> CMap:
    """Tell C++ of a map of `width` numbers: `weight` [N, D] with D = `width`, or in 8 bits by `in_pieces`, with a step
    [N] for each row.

    Errors: `ValueError` for a weight of another width, or that lies in memory otherwise.
    """
    fits = weight.shape[1] == (width if step is None else -(-width // PIECE))
    if not fits or not all(each is None or each.is_contiguous() for each in (weight, step, bias)):
        raise ValueError(f"A map of {width} numbers needs a weight for them, row by row; got {[*weight.shape]}.")
    addresses = [None if each is None else each.data_ptr() for each in (weight, step, bias)]
    return CMap(NUMBERS[weight.dtype], width, len(weight if step is None else step), *addresses)


def product(
    x: Float[Tensor, "M D"], weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None
) -> Float[Tensor, "M N"]:
    """x W^T + b in float32, as `c_map` has it; by torch's product for many rows of weights that are not in 8 bits.

    Errors: `ValueError` for other numbers than float32 on a CPU, and as `c_map`.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32:
        raise ValueError(f"Our C++ reads float32 on a CPU; got {x.dtype} on {x.device}.")
    if step is None and len(x) > FEW:
        return F.linear(x, weight.to(x.dtype), bias)
    x, told = x.contiguous(), c_map(weight, step, bias, x.shape[1])
    y = x.new_empty(x.shape[0], told.out)
    linear_map()(ctypes.byref(told), x.data_ptr(), y.data_ptr(), x.shape[0], torch.get_num_threads())
    return y


@cache
def linear_map() -> Callable[..., None]:
    """linear_map of step.cpp."""
    return declared("linear_map", ctypes.c_void_p, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_int)


def declared(name: str, *arguments: Any) -> Callable[..., None]:
    """A function of step.cpp that returns nothing."""
    found = getattr(library(CPP), name)
    found.argtypes, found.restype = arguments, None
    return found
