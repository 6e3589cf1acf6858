"""One transformer block, for every kind of stack: residual branches, and where their norms go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.part import Part, same_width
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.mask import Mask
from glassformer.nn.positions import Rotation


class Nearby(NamedTuple):
    """Where the tokens 1, 2, ... places before each new one are: the first dimension is how far back."""

    columns: Int[Tensor, "N *batch T"] | None
    """Their columns, -1 where there is none. None: as many columns back, and none before the first column."""
    real: Bool[Tensor, "N *batch T"] | None
    """False where a text has no token so far back, if `columns` are None. None: only before the first column."""


class StochasticDepth(nn.Dropout):
    """Drops a whole branch, independently for each sequence (Huang et al. 2016, section 3).

    In training, kept outputs are divided by 1 - p, so that their expected value is the branch's output and evaluation
    changes nothing; the paper multiplies by 1 - p in evaluation instead.
    """

    def forward(self, input: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Zeroes some rows and scales up the others."""
        if not self.training or self.p == 0.0:
            return input
        return input * super().forward(input.new_ones(input.shape[0], 1, 1))


def drop_chance(block: int, n_layers: int, last: float) -> float:
    """The drop probability of block 0, 1, ...: it grows linearly to `last` at the last block (section 3)."""
    return last * (block + 1) / n_layers


PLACEMENTS: dict[str, tuple[str, ...]] = {
    "pre": ("in",),
    "post": ("sum",),
    "output": ("out",),
    "sandwich": ("in", "out"),
}
"""Which slots hold a norm: before the branch (Xiong et al. 2020), after the sum (Vaswani et al. 2017), after the branch
(Liu et al. 2022, Swin v2, section 3.2; OLMo 2), or before and after it (Ding et al. 2021, CogView, section 2.4)."""


class Residual(Part):
    """norm_sum(scale x + dropout(norm_out(branch(convolution(norm_in(x)))))); a slot without a norm is the identity.

    The placements pre, post and output::

          pre                        post                                  output
        x ─┬─ norm_in ─ branch ─┐    x ─┬─ branch ─┐                       x ─┬─ branch ─ norm_out ─┐
           └────────────────── + ─      └──────── + ─ norm_sum ─              └─────────────────── + ─

    "sandwich" has norm_in and norm_out. With parallel branches, the branch reads the block's input, not x, to which its
    output is added all the same. `scale` multiplies the skip connection (alpha of Wang et al. 2022). `stochastic_depth`
    is the probability that a sequence skips the branch in training (`StochasticDepth`). A `ShortConvolution` lets the
    branch read the tokens just before each, too.

    >>> import torch
    >>> added = Residual(nn.Linear(8, 8), lambda: nn.LayerNorm(8), placement="post")
    >>> added(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
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
        convolution: nn.Module | None = None,
    ) -> None:
        super().__init__()
        slots = lookup(PLACEMENTS, placement, "norm_placement")
        self.d_model: int | None = getattr(branch, "d_model", None)
        self.scale = scale
        self.norm_in = norm() if "in" in slots else nn.Identity()
        self.convolution = convolution
        self.branch = branch
        self.norm_out = norm() if "out" in slots else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.depth = StochasticDepth(stochastic_depth) if stochastic_depth else None
        self.norm_sum = norm() if "sum" in slots else nn.Identity()
        for each in (self.norm_in, self.norm_out, self.norm_sum):
            same_width("Residual", "norm", each, self.d_model)
        if convolution is not None:
            same_width("Residual", "convolution", convolution, self.d_model)

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
        added = self.dropout(self.norm_out(self.branch(inside, **inputs)))
        if self.depth is not None:
            added = self.depth(added)
        around = x if self.scale == 1.0 else x * self.scale
        return self.norm_sum(around + added)


class Block(Part):
    """Two or three residual branches (Vaswani et al. 2017, figure 1), one after another or in parallel.

    One after another, each branch reads the stream with what those before it have added. In `parallel`, all read the
    stream as it enters the block: x + attention(x) + feed_forward(x) (GPT-J; Black et al. 2022, section 2.1.2).

    In an encoder there is no cross-attention and the mask is not causal. In a decoder the mask is causal. The decoder
    of an encoder-decoder also has cross-attention, which reads the encoder's output (the memory).

    >>> import torch
    >>> from torch import nn
    >>> from glassformer import ATTEND, Attention, Block, FeedForward, Mask, Residual
    >>> attention = Attention(8, 2, ATTEND["softmax"]["reference"])
    >>> branches = attention, FeedForward(8, 16, nn.functional.relu)
    >>> first, second = (Residual(each, lambda: nn.LayerNorm(8)) for each in branches)
    >>> Block(first, None, second)(torch.zeros(1, 3, 8), Mask()).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        self_attention: Residual,
        cross_attention: Residual | None,
        feed_forward: Residual,
        *,
        parallel: bool = False,
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        widths = [each.d_model for each in self.branches if each.d_model is not None]
        self.d_model = widths[0] if widths else None
        if len({*widths}) > 1:
            raise ConfigError(
                f"All branches of Block must have the same d_model; got {widths}. Make them for the same width."
            )

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Mask | Tensor | None = None,
        rotation: Rotation | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Mask | Tensor | None = None,
        nearby: Nearby | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        convolved: tuple[LayerCache, LayerCache] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the residual stream after this block. Without a mask, all of x, or all of the memory, may be read.

        `nearby` and `convolved` are for short convolutions: where earlier tokens are, and the caches of those before
        self-attention and before feed-forward.
        """
        before_attention, before_forward = (None, None) if convolved is None else convolved
        reads = x if self.parallel else None
        x = self.self_attention(x, mask=mask, rotation=rotation, cache=cache, nearby=nearby, convolved=before_attention)
        if self.cross_attention is not None:
            if memory is None:
                raise ConfigError(
                    "A block with cross-attention needs a memory; got None. Give memory=, the output of the encoder."
                )
            x = self.cross_attention(x, reads=reads, source=memory, mask=memory_mask, cache=cross_cache)
        elif memory is not None:
            raise ConfigError(
                "Only a block with cross-attention reads a memory, and this one has none. Remove memory=, or make the "
                "block with cross_attention."
            )
        return self.feed_forward(x, reads=reads, nearby=nearby, convolved=before_forward)

    @property
    def branches(self) -> list[Residual]:
        """The branches that this block has, in order."""
        every = (self.self_attention, self.cross_attention, self.feed_forward)
        return [branch for branch in every if branch is not None]

    @property
    def writers(self) -> list[nn.Linear]:
        """The linear maps of all branches that write to the residual stream."""
        return [writer for each in self.branches for writer in cast(list[nn.Linear], each.branch.writers)]
