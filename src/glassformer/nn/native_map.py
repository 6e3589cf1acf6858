"""A linear map by our C++, which is told of it once."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.base.shapes import Float, Num, Tensor
from glassformer.fast.native import CMap, float_map, multiply
from glassformer.nn.opaque import native_product


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
