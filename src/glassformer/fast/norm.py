"""RMS norm with a gradient written by hand, as training on a CPU computes it."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.norm import RMSNorm, as_autocast


class FastRMSNorm(RMSNorm):
    """`RMSNorm` whose gradient is torch's kernel for that of layer norm, plus a correction."""

    exchanges = RMSNorm

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """As `RMSNorm.forward`."""
        if not self.training or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        return as_autocast(_RMSNorm.apply(x, self.weight, self.eps))


class _RMSNorm(torch.autograd.Function):
    """The norm, and its gradient.

    Let r = 1 / sqrt(mean(x^2) + eps), g the gradient of y = x r w, and h = g w. Then d/dx is (h - x r^2 mean(h x)) r.
    Layer norm's kernel, given 0 as the mean of x, gives this minus mean(h) r, which we add back; d/dw is the same.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Compute the norm with fewer intermediate tensors than its steps."""
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
