"""Softmax over the last axis, with our own implementation for rows too short for torch's CPU kernel."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.base.tracing import traced

SHORT = 32
"""Up to this many keys, elementwise steps beat torch's CPU kernel, which does rows shorter than a vector one by one."""


def softmax(scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
    """exp(score), divided by its sum over the row, in the dtype of the scores."""
    if traced() or scores.shape[-1] > SHORT or scores.device.type != "cpu":
        return scores.softmax(-1)
    return _ShortSoftmax.apply(scores)


class _ShortSoftmax(torch.autograd.Function):
    """Softmax by elementwise steps; d loss / d score = weight * (gradient - sum over the row of weight * gradient)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """Compute in float32 or wider; keep only the result for the backward pass."""
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        powers = (wide - wide.amax(-1, keepdim=True)).exp_()
        weights = powers.div_(powers.sum(-1, keepdim=True)).to(scores.dtype)
        ctx.save_for_backward(weights)
        return weights

    # The decorator on the base class hides the parameter names from the type checker.
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """In float32 or wider, too; by differentiable operations, as the gradient may itself be differentiated."""
        (weights,) = ctx.saved_tensors
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        weighted = wide * grads[0]
        return (weighted - wide * weighted.sum(-1, keepdim=True)).to(weights.dtype)
