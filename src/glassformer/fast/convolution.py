"""A short convolution and its gradients in our C++ (fast/cpp/convolution.cpp), as training on a CPU computes them."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.base.tracing import differentiated
from glassformer.fast.native import CPP, NAMES, address, may_read, there_and_back
from glassformer.nn.convolution import ShortConvolution, by_shifts

SOURCE = CPP.with_name("convolution.cpp")
PIECE = 32
"""Tokens of a text that are one thread's: those, their outputs and gradients stay in a processor's second cache."""


class FastConvolution(ShortConvolution):
    """`ShortConvolution` that trains in C++."""

    exchanges = ShortConvolution

    def shifted(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "N *batch T"] | None) -> Float[Tensor, "B T D"]:
        """The convolution of whole texts."""
        if self.training and serves(x, self.weight, real):
            return convolve(x, self.weight, real)
        return super().shifted(x, real)


class CShifts(ctypes.Structure):
    """`Shifts` of convolution.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("B", "T", "D", "taps", "piece")),
        ("real", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("taps_apart", "texts_apart")),
        *((name, ctypes.c_void_p) for name in ("x", "weight", "y", "of_y", "of_x", "of_weight")),
    )


def serves(x: Tensor, weight: Tensor, real: Tensor | None) -> bool:
    """Whether our C++ computes this: gradients are asked for, it may read these, and has such numbers and sizes."""
    if not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad) and may_read(x, weight, real)):
        return False
    if not (x.dtype in NAMES and x.ndim == 3 and x.numel() and weight.shape[1:] == x.shape[2:] and len(weight)):
        return False
    if real is not None:
        texts = real.shape[1:] in (x.shape[:2], (1, x.shape[1]), x.shape[1:2])
        if not (texts and len(real) == len(weight) and real.dtype == torch.bool):
            return False
    return weight.dtype == torch.promote_types(x.dtype, torch.float32)


def convolve(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "N D"], real: Bool[Tensor, "N *batch T"] | None
) -> Float[Tensor, "B T D"]:
    """`by_shifts` in C++, rounded once to the dtype of x."""
    return _Convolution.apply(x.contiguous(), weight.contiguous(), real)


class _Convolution(torch.autograd.Function):
    """What C++ computes, and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, real: Tensor | None) -> Tensor:
        """Convolve; keep only the inputs."""
        y = torch.empty_like(x)
        call(x, weight, real, y=y)
        ctx.save_for_backward(x, weight, real)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients; if they will themselves be differentiated, or many are asked for, by differentiable steps."""
        x, weight, real = ctx.saved_tensors
        if differentiated(grads[0]):
            with torch.enable_grad():
                given = [each.view_as(each) for each in (x, weight)]
                wanted = [each for each, need in zip(given, ctx.needs_input_grad, strict=False) if need]
                y = by_shifts(given[0], given[1], real)
                found = iter(torch.autograd.grad(y, wanted, grads[0], create_graph=True))
            return (*(next(found) if need else None for need in ctx.needs_input_grad[:2]), None)
        of_x = torch.empty_like(x)
        of_weight = weight.new_empty(len(x) * -(-x.shape[1] // PIECE), *weight.shape)
        call(x, weight, real, of_y=grads[0].resolve_neg().contiguous(), of_x=of_x, of_weight=of_weight)
        return of_x, of_weight.sum(0), None


def call(x: Tensor, weight: Tensor, real: Tensor | None, **others: Tensor) -> None:
    """Call our C++, for the way back if there is a gradient `of_y`."""
    (B, T, D), N = x.shape, len(weight)
    real = None if real is None else real.contiguous()
    apart = (0, 0) if real is None else (real[0].numel(), T if real[0].numel() > T else 0)
    shifts = CShifts(B, T, D, N, PIECE, address(real), *apart, x.data_ptr(), weight.data_ptr())
    for name, tensor in others.items():
        setattr(shifts, name, tensor.data_ptr())
    name = f"convolution_{NAMES[x.dtype]}"
    there_and_back(SOURCE, name)(ctypes.byref(shifts), "of_y" in others, torch.get_num_threads())
