"""Linear maps for decoding on a CPU: by our C++, by oneDNN with packed weights, and in 8 bits.

Their products are operators of our own, which `torch.compile` treats as opaque. oneDNN is torch's CPU library, which
packs weights in a layout of its own; torch has operators for its products too, but the compiler looks inside them and
does not know that layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import DataError
from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Float, Int, Num, Tensor
from glassformer.fast.native import (
    CPP,
    CMap,
    declared,
    float_map,
    has_cpp,
    in_pieces,
    may_read,
    multiply,
    product,
    write_heads,
)
from glassformer.nn.compact_cache import rounded

FEW = 32
"""Beyond this many positions, bfloat16 is multiplied by oneDNN where the processor has instructions for it."""

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


class NativeMap:
    """`product` at each position, from D numbers to N, in float32; also while steps are compiled.

    The module that has this map has its tensors. If they move, or become others, C++ is told again.
    """

    def __init__(self, D: int, N: int) -> None:
        self._sizes = (D, N)
        self._told: tuple[list[Any], CMap] | None = None

    def __reduce__(self) -> tuple[type[NativeMap], tuple[int, int]]:
        """Copied tensors lie elsewhere, so a copy knows nothing yet."""
        return NativeMap, self._sizes

    def __call__(
        self, x: Float[Tensor, "*where D"], weight: Num[Tensor, "..."], step: Tensor | None, bias: Tensor | None
    ) -> Float[Tensor, "*where N"]:
        """Errors: `ValueError` as `product`, and for an x of another width."""
        D, N = self._sizes
        if x.shape[-1] != D:  # the pieces of a weight may have room for some more
            raise ValueError(f"A map from {D} numbers to {N} got {x.shape[-1]} numbers at each position.")
        if torch.compiler.is_compiling():
            return native_product(x.reshape(-1, D).float(), weight, step, bias, N).view(*x.shape[:-1], N)
        return multiply(x.float(), self._telling(weight, step, bias))

    def _telling(self, weight: Tensor, step: Tensor | None, bias: Tensor | None) -> CMap:
        of = [place_of(weight), place_of(step), place_of(bias)]
        told = self._told
        if told is None or told[0] != of:
            told = self._told = (of, float_map(weight, step, bias, *self._sizes))
        return told[1]


def place_of(tensor: Tensor | None) -> Any:
    """Where a tensor lies in memory, and how."""
    return None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def can_pack(device: torch.device) -> bool:
    """Whether oneDNN multiplies matrices on this device."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()


class PackedLinear(nn.Module):
    """y = x W^T + b in the dtype of W, float32 or bfloat16, with W packed for oneDNN once.

    torch's own linear map reads W as it lies, or packs it at each call, which takes longer for a few rows. It has no
    parameters. For bfloat16 it needs a CPU with bfloat16 instructions (`has_bfloat16`).
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        self.width, self.dtype = len(weight), weight.dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        return packed_product(x.to(self.dtype), self.packed, self.bias, self.width)


class NativeLinear(nn.Module):
    """y = x W^T + b in float32, by our C++ (maps.h), with W in float32, or in bfloat16 if so given.

    In float32 the weights are those of the model, not copied, and torch multiplies where gradients are wanted.
    bfloat16 halves the bytes to be read; its numbers are widened when they are used, so that sums are as exact as in
    float32, and no instructions for bfloat16 are needed. Where there are such instructions, many positions are
    multiplied by `PackedLinear`, which rounds x and y to bfloat16 too; for this, weights are in memory twice.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        super().__init__()
        (self.n_outputs, self.n_inputs), self.bias = weight.shape, bias
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        narrow, device = weight.dtype == torch.bfloat16, weight.device
        self.weight: Num[Tensor, "..."] = in_pieces(weight.detach()) if narrow else weight.contiguous()
        hardware = narrow and has_bfloat16(device) and can_pack(device)
        self.packed = PackedLinear(weight, None if bias is None else bias.bfloat16()) if hardware else None

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """The map at each position; under autocast, x may come in another dtype."""
        many = x.numel() > FEW * self.n_inputs
        if self.packed is not None and many and not torch.compiler.is_compiling():
            return self.packed(x).float()
        wanted = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if wanted and self.weight.dtype == torch.float32:
            return F.linear(x.float(), self.weight, self.bias)
        return self._map(x, self.weight, None, self.bias)


class Int8Linear(nn.Module):
    """y = (P Q^T) * step(x) * step(W) + b, where P * step(x) is the input and Q * step(W) the weight, to half a step.

    Each row of W and each position of x has its own step (`rounded`). Sums of products of whole numbers are exact, so
    the result of one position does not depend on the others, nor on the machine. Weights take a quarter of the bytes of
    float32 and are laid out once for our C++ (whole.h), which is compiled before, if need be. It has no parameters and
    passes no gradient.
    """

    def __init__(self, weight: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None = None) -> None:
        """Quantises the weights of a linear map. Errors: `DataError` for weights that are not finite."""
        super().__init__()
        whole, step = rounded(weight.detach().float())
        if not bool(step.isfinite().all()):
            raise DataError(
                "Only finite weights can be stored in 8 bits; got NaN or infinity. The checkpoint may be damaged: use "
                "another one."
            )
        self.n_outputs, self.n_inputs = weight.shape
        self._map = NativeMap(self.n_inputs, self.n_outputs)
        self.weight, self.step = in_pieces(whole), step[:, 0].contiguous()
        self.bias = None if bias is None else bias.detach().float().contiguous()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A model may have been pickled on another processor."""
        super().__setstate__(state)
        write_heads(self.weight)

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where N"]:
        """Apply the map at each position; the result has the dtype of x."""
        return self._map(x, self.weight, self.step, self.bias).to(x.dtype)


# Sums over a vocabulary and its most likely tokens in our C++ (fast/cpp/likely.cpp): each reads the logits once.

SOURCE = CPP.with_name("likely.cpp")
MOST = 256
"""Of more than so many tokens torch finds the most likely ones sooner: here each is put in its place one by one."""


def can_look_at(logits: Float[Tensor, "rows V"], k: int = 1) -> bool:
    """Whether C++ can do it here: for rows of float32 on a CPU, without gradients, and a few of their tokens."""
    plain = logits.dtype == torch.float32 and logits.ndim == 2 and logits.stride(-1) == 1
    wanted = 1 <= k <= MOST and logits.numel() > 0 and not (logits.requires_grad and torch.is_grad_enabled())
    return plain and wanted and may_read(logits) and has_cpp(SOURCE)


def log_sums(logits: Float[Tensor, "rows V"]) -> Float[Tensor, "rows 1"]:
    """As torch.logsumexp, in float64 where it ends; e^z is that of float32. NaN for a row with NaN or +inf."""
    sums = torch.empty(len(logits), 1, dtype=torch.float64, device="cpu")
    function("log_sums", 1)(*lies(logits), sums.data_ptr(), torch.get_num_threads())
    return sums


def largest(logits: Float[Tensor, "rows V"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """As torch.topk with k <= V: values in float64, and ids; among equals the lowest id comes first."""
    values = torch.empty(len(logits), k, dtype=torch.float64, device="cpu")
    ids = torch.empty(len(logits), k, dtype=torch.int64, device="cpu")
    function("most_likely", 2)(*lies(logits), k, ids.data_ptr(), values.data_ptr(), torch.get_num_threads())
    return values, ids


def lies(logits: Tensor) -> tuple[int, int, int, int]:
    """Where logits lie, how many rows there are, how far apart, and of what size."""
    return logits.data_ptr(), len(logits), logits.stride(0), logits.shape[1]


@cache
def function(name: str, found: int) -> Callable[..., None]:
    """A function of likely.cpp that writes into `found` tensors."""
    sizes = [ctypes.c_int64] * (2 + found)
    return declared(name, ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * found, ctypes.c_int, source=SOURCE)
