"""The parts of a stack, made as its config says: the input map, position schemes, norms, branches and blocks."""

from __future__ import annotations

from typing import Any

from torch import nn

from glassformer.base.contradictions import ADDS_TO_SCORES
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, Residual
from glassformer.nn.config import StackConfig
from glassformer.nn.convolution import ShortConvolution
from glassformer.nn.embedding import Embedding, FeatureMap
from glassformer.nn.feed_forward import ACTIVATIONS, EXPERTS, FEED_FORWARDS
from glassformer.nn.norm import NORMS
from glassformer.nn.positions import POSITIONS, Positions, Relation, Sizes
from glassformer.nn.rules import choose


def sizes_of(config: StackConfig) -> Sizes:
    """Collect the settings that a position scheme may need."""
    return Sizes(
        config.d_model,
        config.n_heads,
        config.head_width,
        config.max_len,
        causal=config.causal,
        rotary=config.rotary,
        relative=config.relative,
    )


def scheme_of(config: StackConfig) -> Positions:
    """Make the position scheme of a stack, or of some of its blocks."""
    return lookup(POSITIONS, config.positions, "positions")(sizes_of(config))


def order_of(config: StackConfig) -> tuple[Any, ...]:
    """What tells position schemes of one stack apart: those that read no heads are the same whatever these are."""
    heads = (config.n_heads,) if config.positions in ADDS_TO_SCORES else ()
    width = (config.head_width,) if config.positions in ("rotary", "shaw") else ()
    return config.positions, config.rotary, config.relative, *heads, *width


def build_input(config: StackConfig, vocab_size: int | None, scale: float) -> Embedding | FeatureMap:
    """Make the input map of a stack: an embedding of tokens, or a linear map of features."""
    if config.n_features is not None:
        return FeatureMap(config.n_features, config.d_model)
    if vocab_size is None:
        raise ConfigError("A stack that reads tokens needs vocab_size; got None. Give it, or set n_features.")
    return Embedding(vocab_size, config.d_model, scale=scale)


def build_norm(config: StackConfig) -> nn.Module:
    """Make one norm of the stack."""
    return lookup(NORMS, config.norm, "norm")(config.d_model, config.norm_eps)


def build_feed_forward(config: StackConfig) -> nn.Module:
    """Make one feed-forward branch of the stack."""
    activation = lookup(ACTIVATIONS, config.activation, "activation")
    lookup(EXPERTS, config.expert, "expert")
    make = lookup(FEED_FORWARDS, config.feed_forward, "feed_forward")
    inside = {"dropout": config.feed_forward_dropout, "bias": config.bias, **config.routing}
    return make(config.d_model, config.d_ff, activation, **inside)


def build_block(
    config: StackConfig, *, reads_memory: bool, relation: Relation | None = None, dropped: float = 0.0
) -> Block:
    """Make one block of the stack, with new parameters.

    `relation` is what the position scheme adds in its self-attention, `dropped` its stochastic depth probability.
    """
    attend, weigh = choose(config.attention_rule, config.attention, cap=config.softcap)
    qk_norm = lookup(NORMS, config.qk_norm, "qk_norm")

    def attention(relation: Relation | None = None) -> Attention:
        return Attention(
            config.d_model,
            config.n_heads,
            attend,
            weigh=weigh,
            n_kv_heads=config.n_kv_heads,
            d_head=config.d_head,
            dropout=config.attention_dropout,
            bias=config.bias,
            qk_norm=lambda width: qk_norm(width, config.norm_eps),
            relation=relation,
            scale=config.attention_scale,
        )

    def convolution() -> ShortConvolution | None:
        return ShortConvolution(config.convolution, config.d_model) if config.convolution > 1 else None

    def residual(branch: nn.Module, convolution: ShortConvolution | None = None) -> Residual:
        return Residual(
            branch,
            lambda: build_norm(config),
            placement=config.norm_placement,
            dropout=config.dropout,
            scale=config.residual_scale,
            stochastic_depth=dropped,
            convolution=convolution,
        )

    cross = residual(attention()) if reads_memory else None
    feed_forward = residual(build_feed_forward(config), convolution())
    own = residual(attention(relation), convolution())
    return Block(own, cross, feed_forward, parallel=config.parallel_branches)
