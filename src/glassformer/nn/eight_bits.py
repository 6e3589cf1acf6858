"""Quantising vectors to 8 bits: whole numbers, and the step size that they are multiples of."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Float, Int8, Tensor

LARGEST = 127
"""The numbers are -127 to 127, so that x and -x are equally exact."""
TINY = 1e-30
"""The smallest step, so that a vector of zeros is not divided by 0."""


def rounded(x: Float[Tensor, "*where K"]) -> tuple[Int8[Tensor, "*where K"], Float[Tensor, "*where 1"]]:
    """Quantise each vector: return whole numbers and one step per vector, whose product is x to within half a step.

    The largest number of a vector is 127 steps (Dettmers et al. 2022, section 2.1, vector-wise). A vector with NaN or
    infinity gets a step of NaN or infinity, so that its product cannot be mistaken for a valid result.
    """
    step = x.abs().amax(-1, keepdim=True).float().mul(1 / LARGEST).clamp_min(TINY)
    return (x / step).round_().to(torch.int8), step
