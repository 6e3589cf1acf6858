"""Numbers in 8 bits: whole ones, and the size of the step that they count."""

from __future__ import annotations

import torch

from glassformer.foundation.shapes import Float, Int8, Tensor

LARGEST = 127
"""The numbers are -127 to 127, so that x and -x are as exact."""
TINY = 1e-30
"""What zeros are divided by."""


def rounded(x: Float[Tensor, "*where K"]) -> tuple[Int8[Tensor, "*where K"], Float[Tensor, "*where 1"]]:
    """The nearest whole numbers and the step that they count, one a vector: their product is x, to half a step.

    The largest of a vector is 127 steps (Dettmers et al. 2022, section 2.1, vector-wise). The step of a vector with NaN
    or infinity is NaN or infinity, so that its product is none that could be taken for an answer.
    """
    step = x.abs().amax(-1, keepdim=True).float().mul(1 / LARGEST).clamp_min(TINY)
    return (x / step).round_().to(torch.int8), step
