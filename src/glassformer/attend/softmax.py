"""Softmax over the last axis, with an implementation of its own for rows too short for torch's CPU kernel."""

from __future__ import annotations

from typing import Any

import torch

from glassformer.foundation.shapes import Float, Tensor

SHORT = 32
"""Keys up to which the elementwise steps beat torch's kernel, which computes rows shorter than a vector one by one."""


def softmax(scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
    """exp(score) / sum over a row of exp(score), in the dtype of the scores."""
    if torch.compiler.is_compiling() or scores.shape[-1] > SHORT or scores.device.type != "cpu":
        return scores.softmax(-1)
    return _ShortSoftmax.apply(scores)


class _ShortSoftmax(torch.autograd.Function):
    """d loss / d score = weight * (gradient - sum over the row of weight * gradient)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """In float32 at least; only the result is kept."""
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        powers = (wide - wide.amax(-1, keepdim=True)).exp_()
        weights = powers.div_(powers.sum(-1, keepdim=True)).to(scores.dtype)
        ctx.save_for_backward(weights)
        return weights

    # The decorator of the base hides the parameters' names from the type checker.
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Made of differentiable steps, so that it can be differentiated again."""
        (weights,) = ctx.saved_tensors
        weighted = weights * grads[0]
        return weighted - weights * weighted.sum(-1, keepdim=True)
