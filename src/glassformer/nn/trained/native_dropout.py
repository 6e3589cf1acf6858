"""Dropout and its gradient in our C++ (nn/cpp/dropout.cpp): one pass, which may add the result to another tensor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.base.tracing import differentiated
from glassformer.nn.native import CPP, NAMES, address, declared, has_cpp, may_read

SOURCE = CPP.with_name("dropout.cpp")


class CDropping(ctypes.Structure):
    """`Dropping` of dropout.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "zeros")),
        ("factor", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("words", "onto", "x", "y")),
    )


class Coins(NamedTuple):
    """Which numbers stay: those whose word of 16 random bits is at least `zeros`; they are multiplied by `factor`."""

    words: Int[Tensor, "..."]
    zeros: int
    factor: float


def serves(x: Tensor, onto: Tensor | None) -> bool:
    """Whether our C++ may read these, and has such numbers; `onto` is of the same shape, in float32 or wider."""
    if not (may_read(x, onto) and x.dtype in NAMES and x.is_contiguous() and x.numel()):
        return False
    wide = torch.promote_types(x.dtype, torch.float32)
    fits = onto is None or (onto.shape == x.shape and onto.dtype == wide and onto.is_contiguous())
    return fits and has_cpp(SOURCE)


def drop(x: Float[Tensor, "..."], onto: Float[Tensor, "..."] | None, coins: Coins) -> Float[Tensor, "..."]:
    """Some numbers of x become 0, the others are multiplied by the factor; then `onto` is added, if it is given."""
    return _Dropout.apply(x, onto, coins)


class _Dropout(torch.autograd.Function):
    """What C++ computes, and its gradients: the way back drops the same numbers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, onto: Tensor | None, coins: Coins) -> Tensor:
        """Drop; keep only the random words."""
        ctx.save_for_backward(coins.words)
        ctx.coins, ctx.dtype = coins[1:], x.dtype
        y = torch.empty_like(x if onto is None else onto)
        call(x, onto, y, coins)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients; if they will themselves be differentiated, or many are asked for, by differentiable steps."""
        coins, of_y = Coins(*ctx.saved_tensors, *ctx.coins), grads[0]
        of_x = None
        if differentiated(of_y):
            of_x = (of_y * (coins.words >= coins.zeros) * coins.factor).to(ctx.dtype)
        elif ctx.needs_input_grad[0]:
            of_x = of_y.new_empty(of_y.shape, dtype=ctx.dtype)
            call(of_y.resolve_neg().contiguous(), None, of_x, coins)
        return of_x, of_y if ctx.needs_input_grad[1] else None, None


def call(x: Tensor, onto: Tensor | None, y: Tensor, coins: Coins) -> None:
    """Call our C++; its functions are named for the numbers of the result and of x."""
    told = CDropping(x.numel(), coins.zeros, coins.factor, *map(address, (coins.words, onto, x, y)))
    native(f"dropout_{NAMES[y.dtype]}_{NAMES[x.dtype]}")(ctypes.byref(told), torch.get_num_threads())


@cache
def native(name: str) -> Callable[..., None]:
    """A function of dropout.cpp."""
    return declared(name, ctypes.c_void_p, ctypes.c_int, source=SOURCE)
