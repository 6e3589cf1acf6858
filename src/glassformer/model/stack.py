"""A stack: embed the tokens, add order, run the blocks."""

from __future__ import annotations

import math

import torch
from torch import nn

from glassformer.attend import ATTEND, Mask
from glassformer.attend.mask import check_keep
from glassformer.foundation.errors import DataError
from glassformer.foundation.registry import lookup
from glassformer.foundation.shapes import Bool, Float, Int, Tensor
from glassformer.model.config import StackConfig
from glassformer.parts import (
    ACTIVATIONS,
    NORMS,
    POSITIONS,
    Attention,
    Block,
    Cache,
    Dropout,
    Embedding,
    FeatureMap,
    FeedForward,
    Residual,
)
from glassformer.parts.cache import Step
from glassformer.parts.positions import Room


class Stack(nn.Module):
    """An encoder or a decoder: tokens to vectors (Vaswani et al. 2017, figure 1, one side)."""

    def __init__(
        self, config: StackConfig, vocab_size: int | None, *, reads_memory: bool = False, scale_embeddings: bool = True
    ) -> None:
        super().__init__()
        self.config = config
        scale = math.sqrt(config.d_model) if scale_embeddings else 1.0
        self.embedding = build_input(config, vocab_size, scale)
        self.token_dropout = Dropout(config.token_dropout)
        room = Room(config.d_model, config.n_heads, config.head_width, config.max_len)
        self.positions = lookup(POSITIONS, config.positions, "positions")(room)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(build_block(config, reads_memory=reads_memory) for _ in range(config.n_layers))
        final = config.final_norm if config.final_norm is not None else config.norm_placement != "post"
        self.norm = build_norm(config) if final else nn.Identity()

    def forward(
        self,
        tokens: Int[Tensor, "B T"] | Float[Tensor, "B T I"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        memory: Float[Tensor, "B M D"] | None = None,
        memory_keep: Bool[Tensor, "B M"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The vectors. `keep` is False at padding, which may stand anywhere: positions count real tokens.

        A stack with `n_features` reads vectors in place of ids. Errors: `DataError` for an id outside the vocabulary,
        for features that are not finite and for a sequence longer than max_len.
        """
        check_keep(keep)
        x = self.embedding(tokens)
        if self.token_dropout.p and self.training:
            x = x * self.token_dropout(x.new_ones(*x.shape[:2], 1))
        places = tokens[:, :, 0] if tokens.ndim == 3 else tokens  # only their number and their device matter
        step = whole(places, keep) if cache is None else cache.advance(places, keep)
        self._check_length(step)
        if (added := self.positions.embedding(step.positions, x)) is not None:
            x = x + added
        x = self.dropout(x)
        mask = self._mask(step, x)
        memory_mask = Mask(keep=memory_keep)
        rotation = self.positions.rotation(step.positions, x)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                rotation=rotation,
                memory=memory,
                memory_mask=memory_mask,
                cache=cache and cache.layers[i],
                cross_cache=cache and cache.cross[i],
            )
        return self.norm(x)

    def _mask(self, step: Step, like: Tensor) -> Mask:
        config = self.config
        bias = self.positions.score_bias(step.positions, step.keys, like)
        if step.in_order:
            return Mask(causal=config.causal, window=config.window, bias=bias)
        return Mask(
            causal=config.causal,
            window=config.window,
            bias=bias,
            query_positions=step.positions,
            key_positions=step.keys,
        )

    def _check_length(self, step: Step) -> None:
        limit, columns = self.config.max_len, step.keys.shape[-1]
        if limit is None or columns <= limit:
            return
        longest = int(step.keys.max()) + 1  # padding takes columns, but no positions
        if longest > limit:
            raise DataError(
                f"A sequence may have at most max_len={limit} tokens; got one of {longest}. "
                "Shorten it, or train with a larger max_len."
            )

    @property
    def last_norm(self) -> nn.Module:
        """The norm that the head reads."""
        if not isinstance(self.norm, nn.Identity):
            return self.norm
        block = self.blocks[-1]
        assert isinstance(block, Block)
        return block.feed_forward.norm_sum


def whole(tokens: Int[Tensor, "B T"] | Float[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None) -> Step:
    """The step of a forward without a cache: the keys are the tokens themselves."""
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    if keep is None:
        return Step(columns, columns, in_order=True)
    positions = keep.long().cumsum(1) - 1
    return Step(positions.clamp(min=0), torch.where(keep, positions, -1), in_order=False)


def build_input(config: StackConfig, vocab_size: int | None, scale: float) -> Embedding | FeatureMap:
    """What makes vectors of what the stack reads: tokens, or features."""
    if config.n_features is not None:
        return FeatureMap(config.n_features, config.d_model)
    assert vocab_size is not None
    return Embedding(vocab_size, config.d_model, scale=scale)


def build_norm(config: StackConfig) -> nn.Module:
    """One norm of the stack."""
    return lookup(NORMS, config.norm, "norm")(config.d_model, config.norm_eps)


def build_block(config: StackConfig, *, reads_memory: bool) -> Block:
    """One block of the stack, each with parameters of its own."""

    def attention() -> Attention:
        return Attention(
            config.d_model,
            config.n_heads,
            lookup(ATTEND["softmax"], config.attention, "attention"),
            n_kv_heads=config.n_kv_heads,
            d_head=config.d_head,
            dropout=config.attention_dropout,
            bias=config.bias,
        )

    def residual(branch: nn.Module) -> Residual:
        return Residual(branch, lambda: build_norm(config), placement=config.norm_placement, dropout=config.dropout)

    activation = lookup(ACTIVATIONS, config.activation, "activation")
    feed_forward = FeedForward(
        config.d_model, config.d_ff, activation, dropout=config.feed_forward_dropout, bias=config.bias
    )
    return Block(residual(attention()), residual(attention()) if reads_memory else None, residual(feed_forward))
