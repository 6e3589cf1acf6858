"""Newton-Schulz iterations in our C++ (fast/cpp/orthogonal.cpp), on a CPU: Muon's step in fewer operations."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from glassformer.base.shapes import Float
from glassformer.fast.native import CPP, declared
from glassformer.train.muon import COEFFICIENTS, TURNS, by_products

SOURCE = CPP.with_name("orthogonal.cpp")
NATIVE = {torch.float32: "orthogonal_float", torch.float64: "orthogonal_double"}
"""The functions of our C++, by what they compute in."""
LACKS = "There is no memory for a step of Muon. Free some, or take another optimizer: --optimizer.name adamw."


def iterate(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """`by_products`, in place where our C++ can do it. Errors: `ResourceError` without memory."""
    return by_cpp(x) if serves(x) else by_products(x)


def serves(x: Float[Tensor, "N R C"]) -> bool:
    """Whether our C++ can do it, and soon: each thread takes whole matrices, so there must be as many."""
    plain = type(x) is Tensor and x.device.type == "cpu" and x.dtype in NATIVE and x.is_contiguous()
    return plain and len(x) >= torch.get_num_threads()


def by_cpp(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """`by_products`, in place."""
    (N, R, C), pointer, size, number = x.shape, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    arguments = (pointer, size, size, size, pointer, number, number)
    compute = declared(NATIVE[x.dtype], *arguments, source=SOURCE, lacks=LACKS)
    compute(x.data_ptr(), N, R, C, (ctypes.c_double * 3)(*COEFFICIENTS), TURNS, torch.get_num_threads())
    return x
