"""A stack (encoder or decoder): embed the tokens, add position information, run the blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from glassformer.base.errors import ArgumentError, ConfigError, DataError
from glassformer.base.part import Part
from glassformer.base.schemes import Pattern
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.base.tensors import (
    check_documents,
    check_keep,
    check_prefix,
    check_read,
    check_shape,
)
from glassformer.base.typed import expect
from glassformer.nn.block import Block, Nearby, drop_chance
from glassformer.nn.build import build_block, build_input, build_norm, order_of, scheme_of
from glassformer.nn.cache import Cache
from glassformer.nn.config import StackConfig, blocks_of
from glassformer.nn.convolution import beside
from glassformer.nn.embedding import Segments
from glassformer.nn.mask import Mask
from glassformer.nn.positions import Positions, Rotation
from glassformer.nn.step import Step, whole, within


class Context(NamedTuple):
    """What a block of a stack is given in a forward pass, in the order of `Block.forward`."""

    mask: Mask
    rotation: Rotation | None
    memory: Float[Tensor, "B M D"] | None
    memory_mask: Mask | None
    nearby: Nearby | None


class Stack(Part):
    """An encoder or a decoder, from tokens to vectors (Vaswani et al. 2017, one side of figure 1)."""

    def __init__(
        self, config: StackConfig, vocab_size: int | None, *, reads_memory: bool = False, scale_embeddings: bool = True
    ) -> None:
        super().__init__()
        self.config, self.d_model = config, config.d_model
        scale = math.sqrt(config.d_model) if scale_embeddings else 1.0
        self.embedding = build_input(config, vocab_size, scale)
        self.token_dropout = nn.Dropout(config.token_dropout)
        self.positions = scheme_of(config)
        self.settings = blocks_of(config)
        self.patterns = [each.pattern for each in self.settings]
        self.taps = {each.convolution for each in self.settings} - {1}
        orders = {order_of(each): each for each in (config, *reversed(self.settings))}
        others = [scheme_of(each) for each in [*orders.values()][1:]]
        self.more_positions = nn.ModuleList(others) if others else None
        self.order = [[*orders].index(order_of(each)) for each in self.settings]
        self.segments = None if config.n_segments is None else Segments(config.n_segments, config.d_model)
        self.embedding_norm = build_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            build_block(
                own,
                reads_memory=reads_memory,
                relation=self.schemes[self.order[i]].relation(),
                dropped=drop_chance(i, config.n_layers, config.stochastic_depth),
            )
            for i, own in enumerate(self.settings)
        )
        final = config.final_norm if config.final_norm is not None else config.norm_placement != "post"
        self.norm = build_norm(config) if final else nn.Identity()
        self.recompute = 0

    def forward(
        self,
        tokens: Int[Tensor, "B T"] | Float[Tensor, "B T I"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "B M D"] | None = None,
        memory_keep: Bool[Tensor, "B M"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        documents: Int[Tensor, "B T"] | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the vectors after the last block and norm.

        `keep` is False at padding, which may be anywhere, because positions count only real tokens. A stack with
        `n_features` reads vectors instead of ids; one with `n_segments` takes `segments`, the part of each token.
        `documents` numbers the texts packed in a row: a token reads only its own document, where positions start anew
        (padding within a document has its number). All tokens may read the first `prefix` real tokens of their row.

        Errors: `DataError` for an id outside the vocabulary, features that are not finite, a sequence longer than
        max_len, a memory with another number of rows, and a `keep` of a wrong shape, as broadcasting would mark wrong
        keys. `ConfigError` for segments, documents or a prefix where they are not supported.
        """
        check_read("tokens", tokens, features=self.config.n_features is not None)
        check_keep(keep)
        check_shape("keep", keep, "tokens", tokens)
        if memory is not None:
            if memory.shape[::2] != (len(tokens), self.d_model):
                raise ArgumentError(f"memory must be [{len(tokens)}, M, {self.d_model}]; got {list(memory.shape)}.")
            check_shape("memory_keep", memory_keep, "memory", memory)
        self._check_reading(tokens, documents, prefix, cache)
        x = self.embedding(tokens)
        if self.token_dropout.p and self.training:
            x = x * self.token_dropout(x.new_ones(*x.shape[:2], 1))
        x = self._marked(x, segments)
        # A cache makes positions in its input's dtype, and bfloat16 cannot count beyond 256: so it gets integers.
        ids = tokens if tokens.ndim == 2 else torch.zeros(x.shape[:2], dtype=torch.long, device=tokens.device)
        step = whole(ids, keep) if cache is None else cache.step(ids, keep)
        self._check_length(step, 0 if cache is None else cache.dropped)
        if cache is not None:
            cache.advance(step)
        standing = step.positions if documents is None else within(documents, step.keys)
        if (added := self.positions.embedding(standing, x)) is not None:
            x = x + added
        x = self.dropout(self.embedding_norm(x))
        nearby = self._nearby(step, ids, keep, documents, cache)
        rotations = [each.rotation(standing, x) for each in self.schemes]  # features of linear attention need them too
        kinds = [*zip(self.patterns, self.order, strict=True)]
        masks = {kind: self._mask(step, x, documents, prefix, *kind) for kind in dict.fromkeys(kinds)}
        memory_mask = None if memory is None else Mask(keep=memory_keep)
        contexts = [
            Context(masks[kind], rotations[kind[1]], memory, memory_mask, nearby.get(own.convolution))
            for kind, own in zip(kinds, self.settings, strict=True)
        ]
        return self.run(x, contexts, cache)

    def run(
        self, x: Float[Tensor, "B T D"], contexts: Sequence[Context], cache: Cache | None = None
    ) -> Float[Tensor, "B T D"]:
        """All blocks, one after another, each in its context, and the last norm. A subclass may compute it faster.

        With `recompute`, each group of so many blocks keeps only its input for the backward pass.
        """
        # Whoever cuts blocks off (an early exit, say) may: where all are of one kind, so are their contexts.
        blocks = list(zip(cast("list[Block]", list(self.blocks)), contexts, strict=bool(self.config.layers)))
        if cache is not None:
            layers = zip(blocks, cache.layers, cache.cross, cache.convolved_layers, strict=True)
            for (block, own), layer, cross, convolved in layers:
                x = block(x, *own, cache=layer, cross_cache=cross, convolved=convolved)
        elif self.recompute and torch.is_grad_enabled():
            for first in range(0, len(blocks), self.recompute):
                x = checkpoint(through, blocks[first : first + self.recompute], x, use_reentrant=False)
        else:
            for block, own in blocks:
                x = block(x, *own)
        return self.norm(x)

    def _marked(self, x: Tensor, segments: Tensor | None) -> Tensor:
        """Add the segment vectors to x, if the stack has segments."""
        if self.segments is not None:
            return self.segments(segments, x)
        if segments is not None:
            raise ConfigError("segments belong to a stack with n_segments; this one has none. Remove segments.")
        return x

    def _check_reading(
        self, tokens: Tensor, documents: Tensor | None, prefix: Tensor | None, cache: Cache | None
    ) -> None:
        check_documents(documents, tokens)
        check_prefix(prefix, tokens)
        if cache is not None:
            expect(cache, Cache, "The cache of a model", "Use new_cache() of the model.")
        taps = max(self.taps, default=1)
        if cache is not None and cache.taps != taps:
            raise ConfigError(
                f"A model with convolution={taps} needs a cache for so many tokens; this one is for "
                f"convolution={cache.taps}. Use new_cache() of the model."
            )
        if cache is not None and documents is not None:
            raise ConfigError(
                "documents cannot be used with a cache, which does not record the document of each key. Give all "
                "tokens at once without a cache, or one document per row without documents."
            )
        if cache is not None and cache.length and prefix is not None:
            raise ConfigError(
                f"A prefix must be given with the first tokens of a cache; this one already holds {cache.length} "
                "tokens. Give the prefix in the first step, and leave it out later."
            )

    def _mask(
        self,
        step: Step,
        like: Tensor,
        documents: Tensor | None,
        prefix: Tensor | None,
        pattern: Pattern | None,
        order: int,
    ) -> Mask:
        config = self.config
        if documents is not None and pattern is not None and pattern.anchored:
            # Blocks, sinks and global tokens are counted within each document, so use positions within documents.
            places = within(documents, step.keys)
            step = Step(places, torch.where(step.keys >= 0, places, -1), in_order=False)
        bias = self.schemes[order].score_bias(step.positions, step.keys, like)
        rules: dict[str, Any] = {"documents": documents, "prefix": prefix, "pattern": pattern, "bias": bias}
        rules["causal"] = config.causal
        in_columns = step.in_order or (config.attention_rule == "linear" and prefix is None)
        if in_columns or (pattern and self._in_columns(step)):
            # Columns can serve as positions, so the mask needs to know only which columns are real.
            keep = None if step.in_order else torch.atleast_2d(step.keys >= 0)
            return Mask(**rules, keep=keep)
        return Mask(**rules, query_positions=step.positions, key_positions=step.keys)

    def _nearby(
        self, step: Step, ids: Tensor, keep: Tensor | None, documents: Tensor | None, cache: Cache | None
    ) -> dict[int, Nearby | None]:
        """Where short convolutions, by their size, find the tokens before each; `cache.convolved` takes in the new."""
        if not self.taps:
            return {}
        if cache is None:
            places = None if documents is None else within(documents, step.keys)
            in_columns = not step.in_order and self._in_columns(step)
            return {taps: beside(step, taps - 1, places, in_columns=in_columns) for taps in self.taps}
        assert cache.convolved is not None, "checked before"
        apart = cache.convolved.step(ids, keep)
        cache.convolved.advance(apart)
        return {taps: Nearby(cache.convolved.earlier(apart, taps - 1), None) for taps in self.taps}

    @property
    def schemes(self) -> list[Positions]:
        """The position schemes: that of the stack, and those of blocks that have others."""
        return cast("list[Positions]", [self.positions, *(self.more_positions or ())])

    @staticmethod
    def _in_columns(step: Step) -> bool:
        """Whether each real token's position is its column (padding on the right), as block-wise attention needs.

        Only on a CPU: elsewhere the answer would have to be waited for.
        """
        here = step.keys.device.type == "cpu" and not torch.compiler.is_compiling()
        if not here or step.positions.shape[-1] != step.keys.shape[-1]:
            return False
        columns = torch.arange(step.keys.shape[-1], device=step.keys.device)
        return bool(((step.keys == columns) | (step.keys < 0)).all())

    def _check_length(self, step: Step, dropped: int) -> None:
        limit, columns = self.config.max_len, step.keys.shape[-1] + dropped
        if limit is None or columns <= limit:
            return
        longest = int(step.keys.max()) + 1  # padding takes columns, but no positions
        if longest > limit:
            raise DataError(
                f"A sequence may have at most max_len={limit} tokens; got one of {longest}. "
                "Shorten it, or train with a larger max_len."
            )

    @property
    def n_branches(self) -> int:
        """The number of residual branches in all blocks."""
        return sum(len(cast(Block, block).branches) for block in self.blocks)

    @property
    def last_norm(self) -> nn.Module:
        """The norm whose output the head reads; an identity if there is none."""
        if not isinstance(self.norm, nn.Identity):
            return self.norm
        block = self.blocks[-1]
        assert isinstance(block, Block)
        return block.feed_forward.norm_sum


def through(blocks: Sequence[tuple[Block, Context]], x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Run some blocks, each in its context."""
    for block, own in blocks:
        x = block(x, *own)
    return x
