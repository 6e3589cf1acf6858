"""The residual connection around a branch; the only file that decides where its norms go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Tensor
from glassformer.nn.columns import LayerCache
from glassformer.nn.convolution import Nearby, ShortConvolution
from glassformer.nn.stochastic_depth import StochasticDepth

PLACEMENTS: dict[str, tuple[str, ...]] = {
    "pre": ("in",),
    "post": ("sum",),
    "output": ("out",),
    "sandwich": ("in", "out"),
}
"""Which slots hold a norm: before the branch (Xiong et al. 2020), after the sum (Vaswani et al. 2017), after the branch
(Liu et al. 2022, Swin v2, section 3.2; OLMo 2), or before and after it (Ding et al. 2021, CogView, section 2.4)."""


class Residual(nn.Module):
    """norm_sum(scale x + dropout(norm_out(branch(convolution(norm_in(x)))))); a slot without a norm is the identity.

      pre                        post                                  output
    x ─┬─ norm_in ─ branch ─┐    x ─┬─ branch ─┐                       x ─┬─ branch ─ norm_out ─┐
       └────────────────── + ─      └──────── + ─ norm_sum ─              └─────────────────── + ─

    "sandwich" has norm_in and norm_out. With parallel branches, the branch reads the block's input, not x, to which its
    output is added all the same. `scale` multiplies the skip connection (alpha of Wang et al. 2022). `stochastic_depth`
    is the probability that a sequence skips the branch in training (`StochasticDepth`). A `convolution` lets the branch
    read the tokens just before each, too.
    """

    def __init__(
        self,
        branch: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        placement: str = "pre",
        dropout: float = 0.0,
        scale: float = 1.0,
        stochastic_depth: float = 0.0,
        convolution: ShortConvolution | None = None,
    ) -> None:
        super().__init__()
        slots = lookup(PLACEMENTS, placement, "norm_placement")
        self.scale = scale
        self.norm_in = norm() if "in" in slots else nn.Identity()
        self.convolution = convolution
        self.branch = branch
        self.norm_out = norm() if "out" in slots else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.depth = StochasticDepth(stochastic_depth)
        self.norm_sum = norm() if "sum" in slots else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        reads: Float[Tensor, "B T D"] | None = None,
        nearby: Nearby | None = None,
        convolved: LayerCache | None = None,
        **inputs: Any,
    ) -> Float[Tensor, "B T D"]:
        """Return the residual stream with the branch's output added; `inputs` are passed to the branch.

        `reads` is what the branch reads (None: x). `nearby` and the cache `convolved` are for the convolution
        (`ShortConvolution.forward`).
        """
        inside = self.norm_in(x if reads is None else reads)
        if self.convolution is not None:
            inside = self.convolution(inside, nearby, convolved)
        added = self.depth(self.dropout(self.norm_out(self.branch(inside, **inputs))))
        around = x if self.scale == 1.0 else x * self.scale
        return self.norm_sum(around + added)
