"""The residual connection around a branch, and where its norms stand: the only place that decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from glassformer.foundation.registry import lookup
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.dropout import Dropout

PLACEMENTS: dict[str, tuple[str, ...]] = {"pre": ("in",), "post": ("sum",)}
"""Which slots hold a norm: before the branch (Xiong et al. 2020) or after the sum (Vaswani et al. 2017)."""


class Residual(nn.Module):
    """norm_sum(x + dropout(branch(norm_in(x)))); a slot without a norm passes its input on.

      pre                        post
    x ─┬─ norm_in ─ branch ─┐    x ─┬─ branch ─┐
       └────────────────── + ─      └──────── + ─ norm_sum ─
    """

    def __init__(
        self, branch: nn.Module, norm: Callable[[], nn.Module], *, placement: str = "pre", dropout: float = 0.0
    ) -> None:
        super().__init__()
        slots = lookup(PLACEMENTS, placement, "norm_placement")
        self.norm_in = norm() if "in" in slots else nn.Identity()
        self.branch = branch
        self.dropout = Dropout(dropout)
        self.norm_sum = norm() if "sum" in slots else nn.Identity()

    def forward(self, x: Float[Tensor, "B T D"], **inputs: Any) -> Float[Tensor, "B T D"]:
        """The stream with the branch's output added; `inputs` go to the branch."""
        return self.norm_sum(x + self.dropout(self.branch(self.norm_in(x), **inputs)))
