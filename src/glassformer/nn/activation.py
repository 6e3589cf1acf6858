"""Elementwise activations and their registry."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from glassformer.base.shapes import Float, Tensor


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2), as in GPT-2."""
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """max(x, 0)^2 (So et al. 2021, Primer, section 3)."""
    return F.relu(x).square()


def identity(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return x itself: a gated branch is then bilinear (Shazeer 2020, equation 5), a plain one linear."""
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "relu_squared": relu_squared,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}
