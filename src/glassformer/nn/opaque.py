"""Matrix products as operators of our own that `torch.compile` treats as opaque: our C++, and oneDNN's.

oneDNN is torch's CPU library, which packs weights in a layout of its own. torch has operators for its products too, but
the compiler looks inside them and does not know that layout.
"""

from __future__ import annotations

import torch

from glassformer.base.shapes import Tensor
from glassformer.fast.native import product

OURS = torch.library.Library("glassformer", "DEF")
OURS.define("native_product(Tensor x, Tensor weight, Tensor? step, Tensor? bias, int N) -> Tensor")
OURS.define("packed_product(Tensor x, Tensor packed, Tensor? bias, int width) -> Tensor")

native_product = torch.ops.glassformer.native_product.default
"""The whole map in one call: `product` of native.py."""
packed_product = torch.ops.glassformer.packed_product.default
"""x W^T + b, with `width` numbers per position; `packed` by `_reorder_linear_weight`."""


def _packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _like_native(x: Tensor, weight: Tensor, step: Tensor | None, bias: Tensor | None, N: int) -> Tensor:
    return x.new_empty(x.shape[0], N)  # len() would fix the number of rows


def _like_packed(x: Tensor, packed: Tensor, bias: Tensor | None, width: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], width)


for key in ("CPU", "MkldnnCPU"):  # inputs are dense tensors, weights are in oneDNN's layout
    OURS.impl("packed_product", _packed, key)
OURS.impl("native_product", product, "CPU")
torch.library.register_fake("glassformer::native_product", _like_native, lib=OURS)  # only shapes, for the compiler
torch.library.register_fake("glassformer::packed_product", _like_packed, lib=OURS)
