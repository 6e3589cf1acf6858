"""The orthogonal matrix near a matrix, by Newton-Schulz iterations: the direction of Muon's step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glassformer.base.shapes import Float

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd polynomial a x + b x^3 + c x^5, which drives singular values in (0, 1] to about 1 (Jordan et
al. 2024)."""
TURNS = 5
LARGE = 2.0**40
"""A power of two, so that dividing by it loses no digits."""


def by_products(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Five Newton-Schulz iterations: matrix products only, which are fast where a decomposition is not."""
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(TURNS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


Iterate = Callable[[Float[Tensor, "N R C"]], Float[Tensor, "N R C"]]


def orthogonal(
    matrices: Float[Tensor, "N R C"], dtype: torch.dtype | None = None, iterate: Iterate = by_products
) -> Float[Tensor, "N R C"]:
    """Approximate U V^T of each matrix U S V^T: singular values end between 0.7 and 1.2 (Jordan et al. 2024).

    Computed in `dtype`, for which bfloat16 is good enough; None: as given.
    """
    return iterate(scaled(matrices.to(dtype or matrices.dtype))).to(matrices.dtype)


def scaled(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Divide each matrix by its norm, so that no singular value is above 1. Zeros stay zeros."""
    largest = x.flatten(1).abs().amax(-1)[:, None, None]  # a norm over two axes takes four times as long
    # Squares of large numbers would add up to infinity, and dividing by infinity would leave no step at all.
    x = x / torch.where(largest > LARGE**2, LARGE**2, torch.where(largest > LARGE, LARGE, 1.0)).to(x.dtype)
    return x.div_(x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7))
