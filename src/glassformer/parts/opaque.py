"""Matrix products of oneDNN, torch's CPU library, as operators of our own that `torch.compile` treats as opaque.

Their weights are packed in oneDNN's own layout. torch has operators for these products too, but the compiler looks
inside them and does not know that layout.
"""

from __future__ import annotations

import torch

from glassformer.foundation.shapes import Tensor

OURS = torch.library.Library("glassformer", "DEF")
OURS.define("int8_product(Tensor whole, Tensor packed, Tensor step, Tensor zeros) -> Tensor")
OURS.define("bfloat16_product(Tensor x, Tensor packed, Tensor? bias, int width) -> Tensor")

int8_product = torch.ops.glassformer.int8_product.default
"""Exact sums [M, N] of products of 8-bit numbers [M, D], each column times its step; `packed` by `qlinear_prepack`."""
bfloat16_product = torch.ops.glassformer.bfloat16_product.default
"""x W^T + b, with `width` numbers per position; `packed` by `_reorder_linear_weight`."""


def _int8(whole: Tensor, packed: Tensor, step: Tensor, zeros: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        whole, 1.0, 0, packed, step, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


def _bfloat16(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _like_int8(whole: Tensor, packed: Tensor, step: Tensor, zeros: Tensor) -> Tensor:
    return whole.new_empty(len(whole), len(step), dtype=torch.float32)


def _like_bfloat16(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], width)


for key in ("CPU", "MkldnnCPU"):  # inputs are dense tensors, weights are in oneDNN's layout
    OURS.impl("int8_product", _int8, key)
    OURS.impl("bfloat16_product", _bfloat16, key)
torch.library.register_fake("glassformer::int8_product", _like_int8, lib=OURS)  # only shapes, for the compiler
torch.library.register_fake("glassformer::bfloat16_product", _like_bfloat16, lib=OURS)
