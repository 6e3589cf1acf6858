"""Our C++ (fast/cpp): what it is told of a model, and how it is called.

The structures here have the fields of those in C++, in the same order. An address is valid as long as
its tensor is; so `Described` keeps each tensor that it names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ConfigError, ResourceError
from glassformer.base.shapes import Float, Num, Tensor
from glassformer.base.tracing import followed
from glassformer.fast.compiler import library

CPP = Path(__file__).with_name("cpp") / "stack.cpp"
LACKS = "There is no memory to run a model's blocks. Give fewer texts at once, or free some memory."
GROUP, BYTES, FILLED = 16, 4, 8
"""How tiles.h reads a matrix: sixteen rows together, four bytes of each at a time, and a multiple of eight columns."""
NUMBERS = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.int8: 2}
"""`Kind` of tiles.h: weights in the numbers of the input, in bfloat16, or in 8 bits."""

NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "bfloat16"}
"""What our C++ for training calls the numbers of a tensor, in the names of its functions."""

LAYOUTS = ("half", "interleaved")
"""Pairs of numbers that C++ can rotate, of `ROTARY_LAYOUTS`."""


class CMap(ctypes.Structure):
    """`Map` of tiles.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "in", "out")),
        *((name, ctypes.c_void_p) for name in ("weight", "step", "bias")),
    )


class CNorm(ctypes.Structure):
    """`Norm` of rows.h; all zeros for no norm."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("eps", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
    )


class CRotation(ctypes.Structure):
    """`Rotation` of rows.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("pairs", "interleaved", "row")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    )


@cache
def has_cpp(source: Path = CPP) -> bool:
    """Whether our C++ can be used here: there is a compiler, or was, and the cache folder can be used. Asked once."""
    with suppress(ConfigError, ResourceError):
        return bool(library(source))
    return False


def may_read(*tensors: Tensor | None) -> bool:
    """Whether our C++ may read these from where they lie: on a CPU, and nobody wants to see each operation on them."""
    given = [each for each in tensors if each is not None]
    plain = all(type(each) in (Tensor, nn.Parameter) and not each.is_neg() for each in given)
    return plain and not followed() and all(each.device.type == "cpu" for each in given)


def in_pieces(weight: Num[Tensor, "N D"]) -> Num[Tensor, "groups pieces 16 columns"]:
    """Lay out a matrix in the order in which our C++ reads it, filled up with zeros.

    In 8 bits each group begins with one piece more, which C++ writes: a whole number for each row that belongs to the
    way in which this processor multiplies (quads.h). Errors: `ValueError` for 8 bits that are not on a CPU.
    """
    N, D = weight.shape
    columns = BYTES // weight.element_size()
    filled = F.pad(weight, (0, -D % FILLED, 0, -N % GROUP))
    pieces = filled.view(-1, GROUP, filled.shape[1] // columns, columns).transpose(1, 2)
    if weight.dtype != torch.int8:
        return pieces.contiguous()
    if weight.device.type != "cpu":
        raise ValueError(f"Our C++ multiplies 8 bits on a CPU; got a weight on {weight.device}.")
    whole = F.pad(pieces, (0, 0, 0, 0, 1, 0)).contiguous()
    write_heads(whole)
    return whole


def write_heads(whole: Num[Tensor, "groups pieces 16 columns"]) -> None:
    """Write what a weight in 8 bits, laid out by `in_pieces`, has for the way in which this processor multiplies."""
    columns = (whole.shape[1] - 1) * whole.shape[3]
    declared("write_heads", ctypes.c_void_p, *[ctypes.c_int64] * 2)(whole.data_ptr(), len(whole), columns)


def c_map(weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, D: int, N: int) -> CMap:
    """Tell C++ of a map from D numbers to N.

    `weight` is [N, D], or in bfloat16 and in 8 bits laid out by `in_pieces`; in 8 bits with a `step` [N]. Errors:
    `ValueError` for tensors of other sizes, or that lie in memory otherwise.
    """
    kind = NUMBERS.get(weight.dtype)
    columns = max(1, BYTES // weight.element_size())
    pieces = (-(-N // GROUP), -(-D // FILLED) * FILLED // columns + (weight.dtype == torch.int8), GROUP, columns)
    fits = weight.shape == ((N, D) if kind == 0 else pieces) and (step is not None) == (weight.dtype == torch.int8)
    whole = all(each is None or each.is_contiguous() for each in (weight, step, bias))
    numbers = weight.dtype if kind == 0 else torch.float32
    beside = all(each is None or (each.shape == (N,) and each.dtype == numbers) for each in (step, bias))
    if not (kind is not None and D and N and fits and whole and beside):
        raise ValueError(
            f"A map from {D} numbers to {N} needs a contiguous weight of that size, {N} steps if it is in 8 bits, and "
            f"steps and bias in {numbers}; got a weight of {[*weight.shape]} in {weight.dtype}."
        )
    return CMap(kind, D, N, *map(address, (weight, step, bias)))


def product(
    x: Float[Tensor, "M D"], weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, N: int
) -> Float[Tensor, "M N"]:
    """x W^T + b in float32, as `c_map` has it, without gradients. Errors: as `float_map` and `multiply`."""
    return multiply(x, float_map(weight, step, bias, x.shape[1], N))


def float_map(weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None, D: int, N: int) -> CMap:
    """`c_map` of a map of float32. Errors: `ValueError` as there, and for weights that are not on a CPU, or float64."""
    if weight.device.type != "cpu" or weight.dtype == torch.float64:
        raise ValueError(f"Our C++ multiplies float32 on a CPU; got a weight in {weight.dtype} on {weight.device}.")
    return c_map(weight, step, bias, D, N)


def multiply(x: Float[Tensor, "*where D"], told: CMap) -> Float[Tensor, "*where N"]:
    """The map at each position. Errors: `ValueError` for other numbers than float32 on a CPU."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        raise ValueError(f"Our C++ reads float32 on a CPU; got {x.dtype} on {x.device}.")
    x = x.contiguous()
    where = x.shape[:-1]
    y = x.new_empty(*where, told.out)
    linear_map()(ctypes.byref(told), x.data_ptr(), y.data_ptr(), where.numel(), torch.get_num_threads())
    return y


@cache
def linear_map() -> Callable[..., None]:
    """linear_map of stack.cpp."""
    return declared("linear_map", ctypes.c_void_p, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_int)


def declared(name: str, *arguments: Any, source: Path = CPP, lacks: str = LACKS) -> Callable[..., None]:
    """A function of our C++. Errors: `ResourceError` if there is no memory for what it computes, as `lacks` tells."""

    def check(enough: bool, function: Any, arguments: Any) -> None:
        if not enough:
            raise ResourceError(lacks)

    found = getattr(library(source), name)
    found.argtypes, found.restype, found.errcheck = arguments, ctypes.c_bool, check
    return found


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor lies, if there is one."""
    return None if tensor is None else tensor.data_ptr()


@cache
def there_and_back(source: Path, name: str, lacks: str = LACKS) -> Callable[..., None]:
    """A function of our C++ for training, called with a structure, whether it is the way back, and the threads."""
    return declared(name, ctypes.c_void_p, ctypes.c_bool, ctypes.c_int, source=source, lacks=lacks)
