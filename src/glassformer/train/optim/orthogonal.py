"""The orthogonal matrix near a matrix, by Newton-Schulz iterations: the direction of Muon's step.

On a CPU our C++ (nn/cpp/orthogonal.cpp) computes what `by_products` says, in fewer operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from glassformer.base.shapes import Float
from glassformer.nn.native import CPP, declared, has_cpp

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd polynomial a x + b x^3 + c x^5, which drives singular values in (0, 1] to about 1 (Jordan et
al. 2024)."""
TURNS = 5
LARGE = 2.0**40
"""A power of two, so that dividing by it loses no digits."""
SOURCE = CPP.with_name("orthogonal.cpp")
NATIVE = {torch.float32: "orthogonal_float", torch.float64: "orthogonal_double"}
"""The functions of our C++, by what they compute in."""
LACKS = "There is no memory for a step of Muon. Free some, or take another optimizer: --optimizer.name adamw."


def orthogonal(matrices: Float[Tensor, "N R C"], dtype: torch.dtype | None = None) -> Float[Tensor, "N R C"]:
    """Approximate U V^T of each matrix U S V^T: singular values end between 0.7 and 1.2 (Jordan et al. 2024).

    Computed in `dtype`, for which bfloat16 is good enough; None: as given. Errors: `ResourceError` without memory.
    """
    x = scaled(matrices.to(dtype or matrices.dtype))
    return (by_cpp(x) if may_use_cpp(x) else by_products(x)).to(matrices.dtype)


def scaled(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Divide each matrix by its norm, so that no singular value is above 1. Zeros stay zeros."""
    largest = x.flatten(1).abs().amax(-1)[:, None, None]  # a norm over two axes takes four times as long
    # Squares of large numbers would add up to infinity, and dividing by infinity would leave no step at all.
    x = x / torch.where(largest > LARGE**2, LARGE**2, torch.where(largest > LARGE, LARGE, 1.0)).to(x.dtype)
    return x.div_(x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7))


def by_products(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Five Newton-Schulz iterations: matrix products only, which are fast where a decomposition is not."""
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(TURNS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def may_use_cpp(x: Float[Tensor, "N R C"]) -> bool:
    """Whether our C++ can do it, and soon: each thread takes whole matrices, so there must be as many."""
    plain = type(x) is Tensor and x.device.type == "cpu" and x.dtype in NATIVE and x.is_contiguous()
    return plain and len(x) >= torch.get_num_threads() and has_cpp(SOURCE)


def by_cpp(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """`by_products`, in place."""
    compute, (N, R, C) = native(NATIVE[x.dtype]), x.shape
    compute(x.data_ptr(), N, R, C, (ctypes.c_double * 3)(*COEFFICIENTS), TURNS, torch.get_num_threads())
    return x


@cache
def native(name: str) -> Callable[..., None]:
    """A function of orthogonal.cpp."""
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    return declared(name, pointer, size, size, size, pointer, number, number, source=SOURCE, lacks=LACKS)
