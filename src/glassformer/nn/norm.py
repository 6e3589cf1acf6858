"""Normalisation of vectors: of the residual stream, or of queries and keys.

>>> from glassformer import NORMS
>>> NORMS["rms"](8, 1e-5)(torch.ones(2, 8)).shape
torch.Size([2, 8])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.runtime import autocast_dtype
from glassformer.base.shapes import Float, Tensor


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axis (Ba, Kiros and Hinton 2016, equation 4).

    Under autocast the result has autocast's dtype: otherwise each linear map that reads it would make its own copy.

    >>> LayerNorm(4, eps=0.0)(torch.tensor([1.0, 3.0, 1.0, 3.0])).tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The normalised vectors."""
        y = F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return as_autocast(y)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis (Zhang and Sennrich 2019, equation 4).

    It subtracts no mean and adds no bias. The root is computed in float32 or wider, and the quotient is rounded to the
    dtype of x before it is multiplied by the weight, as in the training of Llama's published weights. Under autocast,
    as `LayerNorm`.

    >>> RMSNorm(4, eps=0.0)(torch.tensor([2.0, -2.0, 2.0, 2.0])).tolist()
    [1.0, -1.0, 1.0, 1.0]
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The normalised vectors."""
        by_hand = x.device.type == "cpu" and not torch.compiler.is_compiling()  # the compiler fuses the steps itself
        return as_autocast((_RMSNorm.apply if by_hand else rms_norm)(x, self.weight, self.eps))


def rms_norm(x: Float[Tensor, "*where D"], weight: Float[Tensor, " D"], eps: float) -> Float[Tensor, "*where D"]:
    """The equation of `RMSNorm`, step by step."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y.to(x.dtype) * weight


class _RMSNorm(torch.autograd.Function):
    """`rms_norm` with a faster gradient: the one kernel for layer norm's gradient, plus a correction.

    Let r = 1 / sqrt(mean(x^2) + eps), g the gradient of y = x r w, and h = g w. Then d/dx is (h - x r^2 mean(h x)) r.
    Layer norm's kernel, given 0 as the mean of x, gives this minus mean(h) r, which we add back; d/dw is the same.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Compute the norm with fewer intermediate tensors than `rms_norm`."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        y = (wide * inverse_root(wide, eps)).to(x.dtype)
        return y.mul_(weight) if weight.dtype == y.dtype else y * weight

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        """Keep only the inputs for the backward pass, no intermediate tensors."""
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    # The decorator on the base class hides the parameter names from the type checker.
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compute the gradient; if it will itself be differentiated, by differentiable steps."""
        x, weight = ctx.saved_tensors
        D, wide = x.shape[-1], x.to(torch.promote_types(x.dtype, torch.float32))
        g, w = grads[0].to(wide.dtype), weight.to(wide.dtype)
        if torch.is_grad_enabled():
            r, h = (wide.square().mean(-1, keepdim=True) + ctx.eps).rsqrt(), g * w
            of_x = (h - wide * r.square() * (h * wide).mean(-1, keepdim=True)) * r
            of_weight = (g * wide * r).reshape(-1, D).sum(0)
            return of_x.to(x.dtype), of_weight.to(weight.dtype), None
        r, needed = inverse_root(wide, ctx.eps), [*ctx.needs_input_grad[:2], False]
        of_x, of_weight, _ = torch.ops.aten.native_layer_norm_backward(
            g, wide, [D], torch.zeros_like(r), r, w, None, needed
        )
        if of_x is not None:
            of_x = of_x.addcmul_((g * w).sum(-1, keepdim=True), r, value=1 / D).to(x.dtype)
        return of_x, None if of_weight is None else of_weight.to(weight.dtype), None


def inverse_root(x: Float[Tensor, "*where D"], eps: float) -> Float[Tensor, "*where 1"]:
    """1 / sqrt(mean(x^2) + eps), computed without holding all squares."""
    return (torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / x.shape[-1] + eps).rsqrt()


def as_autocast(y: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
    """Convert y to autocast's dtype, if autocast is on."""
    narrow = autocast_dtype(y.device.type)
    return y if narrow is None else y.to(narrow)


NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm, "none": nn.Identity}
"""Each makes a norm from the width and eps."""
