"""One transformer block, for every kind of stack: self-attention, optional cross-attention, feed-forward."""

from __future__ import annotations

from typing import cast

from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import expect
from glassformer.nn.attend import Mask
from glassformer.nn.columns import LayerCache
from glassformer.nn.convolution import Nearby
from glassformer.nn.positions import Rotation
from glassformer.nn.residual import Residual


class Block(nn.Module):
    """Two or three residual branches (Vaswani et al. 2017, figure 1), one after another or in parallel.

    One after another, each branch reads the stream with what those before it have added. In `parallel`, all read the
    stream as it enters the block: x + attention(x) + feed_forward(x) (GPT-J; Black et al. 2022, section 2.1.2).

    In an encoder there is no cross-attention and the mask is not causal. In a decoder the mask is causal. The decoder
    of an encoder-decoder also has cross-attention, which reads the encoder's output (the memory).
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

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Mask | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        nearby: Nearby | None = None,
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
