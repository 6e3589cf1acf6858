"""Elementwise activations for which torch has no single function."""

from __future__ import annotations

import torch.nn.functional as F

from glassformer.foundation.shapes import Float, Tensor


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2), as in GPT-2."""
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """max(x, 0)^2 (So et al. 2021, Primer, section 3)."""
    return F.relu(x).square()


def identity(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return x itself: a gated branch is then bilinear (Shazeer 2020, equation 5), a plain one linear."""
    return x
