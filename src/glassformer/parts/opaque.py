"""Matrix products as operators of our own that `torch.compile` treats as opaque: oneDNN's, and our C++.

oneDNN is torch's CPU library, which packs weights in a layout of its own. torch has operators for its products too, but
the compiler looks inside them and does not know that layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

from glassformer.foundation.native import library
from glassformer.foundation.shapes import Float, Int8, Tensor

CPP = Path(__file__).with_name("int8_map.cpp")
GROUP, PIECE = 4, 16
"""How int8_map.cpp reads a matrix: four rows together, sixteen columns at a time."""

OURS = torch.library.Library("glassformer", "DEF")
OURS.define("int8_product(Tensor whole, Tensor packed, Tensor step, Tensor zeros) -> Tensor")
OURS.define("int8_map(Tensor x, Tensor packed, Tensor step, Tensor bias) -> Tensor")
OURS.define("packed_product(Tensor x, Tensor packed, Tensor? bias, int width) -> Tensor")

int8_product = torch.ops.glassformer.int8_product.default
"""Exact sums [M, N] of products of 8-bit numbers [M, D], each column times its step; `packed` by `qlinear_prepack`."""
int8_map = torch.ops.glassformer.int8_map.default
"""The whole map in one call (int8_map.cpp): x [M, D] in float32 is rounded there; `packed` by `in_pieces`."""
packed_product = torch.ops.glassformer.packed_product.default
"""x W^T + b, with `width` numbers per position; `packed` by `_reorder_linear_weight`."""


def _int8(whole: Tensor, packed: Tensor, step: Tensor, zeros: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        whole, 1.0, 0, packed, step, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


def in_pieces(whole: Int8[Tensor, "N D"]) -> Int8[Tensor, "groups pieces 4 16"]:
    """Lay out a matrix in the order in which int8_map.cpp reads it, filled up with zeros."""
    N, D = whole.shape
    filled = F.pad(whole, (0, -D % PIECE, 0, -N % GROUP))
    return filled.view(-1, GROUP, filled.shape[1] // PIECE, PIECE).transpose(1, 2).contiguous()


def in_cpp(
    x: Float[Tensor, "M D"], packed: Int8[Tensor, "groups pieces 4 16"], step: Tensor, bias: Tensor
) -> Float[Tensor, "M N"]:
    """`int8_map` without torch's dispatcher, which takes longer than a small map."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or -(-x.shape[1] // PIECE) != packed.shape[1]:
        raise ValueError(
            f"int8_map reads float32 on a CPU, {packed.shape[1]} pieces of {PIECE} numbers; got {x.shape[1]} numbers "
            f"of {x.dtype} on {x.device}. Give it what its weights were made for."
        )
    x = x.contiguous()
    y = x.new_empty(x.shape[0], step.shape[0])
    tensors = (x, packed, step, bias, y)
    _function()(*(each.data_ptr() for each in tensors), *x.shape, step.shape[0], torch.get_num_threads())
    return y


@cache
def _function() -> Callable[..., None]:
    """int8_map of int8_map.cpp: five addresses, three sizes, and how many threads."""
    found = library(CPP).int8_map
    found.argtypes, found.restype = [*[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3, ctypes.c_int], None
    return found


def _packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _like_int8(whole: Tensor, packed: Tensor, step: Tensor, zeros: Tensor) -> Tensor:
    return whole.new_empty(whole.shape[0], step.shape[0], dtype=torch.float32)  # len() would fix the number of rows


def _like_map(x: Tensor, packed: Tensor, step: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], step.shape[0])


def _like_packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], width)


for key in ("CPU", "MkldnnCPU"):  # inputs are dense tensors, weights are in oneDNN's layout
    OURS.impl("int8_product", _int8, key)
    OURS.impl("packed_product", _packed, key)
OURS.impl("int8_map", in_cpp, "CPU")
torch.library.register_fake("glassformer::int8_product", _like_int8, lib=OURS)  # only shapes, for the compiler
torch.library.register_fake("glassformer::int8_map", _like_map, lib=OURS)
torch.library.register_fake("glassformer::packed_product", _like_packed, lib=OURS)
