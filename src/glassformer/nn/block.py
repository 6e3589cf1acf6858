"""One transformer block, for every kind of stack: residual branches, and where their norms go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.tensors import check_function, check_refused
from glassformer.base.typed import expect
from glassformer.nn.attention import LayerCache
from glassformer.nn.mask import Mask
from glassformer.nn.positions import Rotation, Step, columns_before, steps_back


class Nearby(NamedTuple):
    """Where the tokens 1, 2, ... places before each new one are: the first dimension is how far back."""

    columns: Int[Tensor, "N *batch T"] | None
    """Their columns, -1 where there is none. None: as many columns back, and none before the first column."""
    real: Bool[Tensor, "N *batch T"] | None
    """False where a text has no token so far back, if `columns` are None. None: only before the first column."""


class ShortConvolution(nn.Module):
    """y_t = x_t + sum over i of w_i * x_(t-i), number by number, for i from 1 to `taps` - 1; w begins at 0.

    A depthwise convolution whose kernel holds 1 for the token itself, over real tokens of one document: a text reads
    the same wherever it stands in a batch. Canon layers A and C (Allen-Zhu 2025, "Physics of Language Models: Part
    4.1") of four taps learn the token's own share, too; RWKV's token shift (Peng et al. 2023, section 3.1) of two gives
    it what the earlier one leaves. Primer convolves the heads of queries, keys and values instead (So et al. 2021).
    """

    def __init__(self, taps: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(taps - 1, d_model))

    def forward(
        self, x: Float[Tensor, "B T D"], nearby: Nearby | None = None, layer: LayerCache | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return x with the shares of earlier vectors added; `layer` keeps x for later steps.

        Without `nearby`, all tokens of x are real, and of one text.
        """
        held = x if layer is None else kept(layer, x)
        if nearby is None or nearby.columns is None:
            return self.shifted(x, None if nearby is None else nearby.real)
        y = x
        for weight, columns in zip(self.weight, nearby.columns, strict=True):
            y = y + weight * taken(held, columns)
        return y

    def shifted(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "N *batch T"] | None) -> Float[Tensor, "B T D"]:
        """The convolution of whole texts."""
        return by_shifts(x, self.weight, real)


def by_shifts(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "N D"], real: Bool[Tensor, "N *batch T"] | None
) -> Float[Tensor, "B T D"]:
    """The convolution of whole texts, whose earlier tokens stand as many columns before, where they are `real`.

    Under autocast it is rounded to the dtype of x at the end, as C++ rounds it.
    """
    y = x
    for i, share in enumerate(weight):
        y = shifted(y, x, share, i + 1, None if real is None else real[i])
    return y.to(x.dtype)


def shifted(
    y: Float[Tensor, "B T D"],
    x: Float[Tensor, "B T D"],
    weight: Float[Tensor, " D"],
    back: int,
    real: Bool[Tensor, "*batch T"] | None,
) -> Float[Tensor, "B T D"]:
    """Add weight * x to y `back` places later, where that is `real`."""
    share = x[:, :-back] * weight
    if real is not None:
        share = share.masked_fill(~real[..., back:, None], 0.0)
    return torch.cat([y[:, :back], y[:, back:] + share], dim=1)


def taken(held: Float[Tensor, "B S D"], columns: Int[Tensor, "*batch T"]) -> Float[Tensor, "B T D"]:
    """The vectors of these columns, zeros where the column is -1."""
    at = columns.clamp(min=0)
    found = held[:, at] if at.ndim == 1 else held.gather(1, at[..., None].expand(-1, -1, held.shape[-1]))
    return found.masked_fill((columns < 0)[..., None], 0.0)


def kept(layer: LayerCache, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B S D"]:
    """Put vectors into a layer of a cache, as the keys of a single head that has no values; return all held there."""
    return layer.append(x[:, None], x[:, None, :, :0])[0][:, 0]


def beside(step: Step, count: int, places: Int[Tensor, "*batch T"] | None, *, in_columns: bool) -> Nearby | None:
    """The `count` tokens before each of a whole text, without a cache.

    `places` are positions within documents, if there are any. `in_columns`: real tokens stand at their positions.
    """
    if step.in_order or in_columns:
        return None if places is None else Nearby(None, places >= steps_back(count, places))
    return Nearby(columns_before(step, count, step.positions if places is None else places), None)


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


class Residual(nn.Module):
    """norm_sum(scale x + dropout(norm_out(branch(convolution(norm_in(x)))))); a slot without a norm is the identity.

    The placements pre, post and output::

          pre                        post                                  output
        x ─┬─ norm_in ─ branch ─┐    x ─┬─ branch ─┐                       x ─┬─ branch ─ norm_out ─┐
           └────────────────── + ─      └──────── + ─ norm_sum ─              └─────────────────── + ─

    "sandwich" has norm_in and norm_out. With parallel branches, the branch reads the block's input, not x, to which its
    output is added all the same. `scale` multiplies the skip connection (alpha of Wang et al. 2022). `stochastic_depth`
    is the probability that a sequence skips the branch in training (`StochasticDepth`). A `convolution` lets the branch
    read the tokens just before each, too.

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
        convolution: ShortConvolution | None = None,
    ) -> None:
        super().__init__()
        expect(branch, nn.Module, "branch of Residual", "Try Attention(...) or FeedForward(...).")
        check_function("norm", norm, "Residual", "lambda: nn.LayerNorm(d_model)")
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
        try:
            inside = self.norm_in(x if reads is None else reads)
        except (RuntimeError, TypeError):
            check_refused(self, self.d_model, x=x)
            raise
        if self.convolution is not None:
            inside = self.convolution(inside, nearby, convolved)
        added = self.dropout(self.norm_out(self.branch(inside, **inputs)))
        if self.depth is not None:
            added = self.depth(added)
        around = x if self.scale == 1.0 else x * self.scale
        return self.norm_sum(around + added)


class Block(nn.Module):
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
        parts = {"self_attention": self_attention, "cross_attention": cross_attention, "feed_forward": feed_forward}
        for name, part in parts.items():
            if name != "cross_attention" or part is not None:
                expect(part, Residual, f"{name} of Block", "Try Residual(Attention(...), norm), or build a Stack.")
        self.parallel = parallel
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        widths = [each.d_model for each in self.branches if each.d_model is not None]
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
