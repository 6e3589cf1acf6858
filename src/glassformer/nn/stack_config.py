"""The configuration of one stack, as a frozen dataclass that is checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from glassformer.base.bounds import at_least, at_most
from glassformer.base.errors import ConfigError
from glassformer.base.order import MOST_PLACES, RelativeConfig, RotaryConfig
from glassformer.base.pattern import Pattern
from glassformer.base.typed import check_types
from glassformer.nn.contradictions import check_attention_rule, check_experts, check_input, check_residual
from glassformer.nn.order import check_order

COUNTS = (
    *("d_model", "n_heads", "n_layers", "d_ff", "n_kv_heads", "d_head", "max_len", "window", "stride", "block"),
    "convolution",
    *("n_experts", "experts_per_token", "n_features", "n_segments"),
)
"""Settings that are counts and must be at least 1."""
PLACES = ("max_len", "window", "stride", "block")
REACH = ("dilation", "global_tokens", "sinks")
"""Settings in positions; `Pattern` checks their least values."""
MOST_WIDE = 2**20
"""Upper bound for widths, heads, blocks and experts: one matrix twice as wide would take 16 TB."""

MOST_TAPS = 64
"""Upper bound for tokens that a short convolution reads: attention is for those farther away, at less cost."""


@dataclass(frozen=True)
class StackConfig:
    """One stack of blocks: an encoder, or a decoder (causal; it reads the encoder's memory if there is an encoder).

    `max_len` counts positions. Errors: `ConfigError` for values that contradict each other. Names (`norm`,
    `activation`, `positions`, `attention_rule`, ...) are looked up later, when the stack is built.
    """

    d_model: int = 256
    n_heads: int = 4
    n_layers: int = 3
    d_ff: int = 1024
    n_features: int | None = None  # None: the stack reads tokens; else vectors of this many numbers
    n_segments: int | None = None  # number of segment embeddings (BERT: 2); None: no segments
    embedding_norm: bool = False  # a norm after embedding, segments and positions, before the first block
    n_kv_heads: int | None = None  # None: as many as n_heads; fewer is grouped-query attention
    d_head: int | None = None  # None: d_model / n_heads
    dropout: float = 0.1  # on the embedding and on the output of each branch (Vaswani et al. 2017, section 5.4)
    attention_dropout: float = 0.0  # on attention weights; above 0 no fused kernel for CPUs can be used
    feed_forward_dropout: float = 0.0  # between the two feed-forward maps; the paper has none there
    token_dropout: float = 0.0  # zeroes the embedding at single places: word dropout (Iyyer et al. 2015)
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_placement: str = "pre"
    final_norm: bool | None = None  # None: depends on the placement (post: no, all others: yes)
    qk_norm: str = "none"  # norm of each head's queries and keys; same names as `norm`
    parallel_branches: bool = False  # each branch of a block reads the block's input, not what earlier ones made of it
    residual_scale: float = 1.0  # multiplies x in x + branch(x); ModelConfig.deepnorm sets its own
    stochastic_depth: float = 0.0  # probability that a sequence skips a branch of the last block; linear up to there
    convolution: int = 1  # attention and feed-forward read so many tokens at once, the own included; 1: no convolution
    activation: str = "relu"
    feed_forward: str = "plain"
    n_experts: int | None = None  # for feed_forward="experts", like the next four; each expert is d_ff wide
    experts_per_token: int = 2
    expert: str = "plain"  # or "gated"
    balance_loss: float = 0.01  # weight of the load-balancing loss (Fedus et al. 2022, alpha of equation 4)
    router_z_loss: float = 0.0  # weight of the router's z-loss (Zoph et al. 2022, equation 5)
    positions: str = "sinusoidal"
    rotary: RotaryConfig = field(default_factory=RotaryConfig)  # for positions="rotary"
    relative: RelativeConfig = field(default_factory=RelativeConfig)  # for positions="t5" and "shaw"
    max_len: int | None = None  # most positions the stack accepts; None: any length (learned positions need a number)
    causal: bool = False
    window: int | None = None  # a query reads this many keys, its own included (not causal: on each side); None: all
    dilation: int = 1  # distance in positions between neighbouring keys of the window
    stride: int | None = None  # a query reads the last `stride` keys and every stride-th before; causal
    block: int | None = None  # a query reads its own block and the last `summary` keys of each block; causal
    summary: int = 1
    global_tokens: int = 0  # the first tokens read everything and are read by all; needs a window
    sinks: int = 0  # the first keys stay readable; needs a causal window
    bias: bool = True
    attention_rule: str = "softmax"  # what is computed; `attention` says how
    attention: str = "auto"  # backend of the rule
    attention_scale: float | None = None  # multiplies q k^T; None: 1 / sqrt(head width)
    softcap: float = 50.0  # bound for scores, for attention_rule="softcap"

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, *COUNTS)
        at_most(self, "", MOST_PLACES, *REACH)
        at_most(self, "", MOST_TAPS, "convolution")
        for name in ("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}. Try {name}=0.1.")
        if not 0.0 < self.norm_eps < float("inf"):
            raise ConfigError(f"norm_eps must be above 0 and finite; got {self.norm_eps}. Try norm_eps=1e-5.")
        if self.d_head is None and self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model ({self.d_model}) must be a multiple of n_heads ({self.n_heads}) unless d_head is given; "
                f"try n_heads={nearest_divisor(self.d_model, self.n_heads)}, "
                f"or d_model={round_to_multiple(self.d_model, self.n_heads)}."
            )
        if self.n_heads % self.kv_heads:
            raise ConfigError(
                f"n_heads ({self.n_heads}) must be a multiple of n_kv_heads ({self.kv_heads}); "
                f"try n_kv_heads={nearest_divisor(self.n_heads, self.kv_heads)}."
            )
        if self.positions == "learned" and self.max_len is None:
            raise ConfigError("positions='learned' needs max_len, the number of positions to learn; try max_len=512.")
        check_input(self)
        check_experts(self)
        check_residual(self)
        if self.pattern is not None:
            self.pattern.check_causal(self.causal)
        check_attention_rule(self)
        check_order(
            self.positions,
            d_head=self.head_width,
            causal=self.causal,
            attention=self.attention,
            rotary=self.rotary,
            relative=self.relative,
        )

    @property
    def routing(self) -> dict[str, Any]:
        """The settings that only a mixture of experts needs; empty for other feed-forwards."""
        names = ("n_experts", "experts_per_token", "expert")
        return {} if self.n_experts is None else {name: getattr(self, name) for name in names}

    @property
    def pattern(self) -> Pattern | None:
        """The sparse pattern of the settings; None if every key may be read. Errors: `ConfigError`."""
        names = (field.name for field in fields(Pattern))
        pattern = Pattern(**{name: getattr(self, name) for name in names})
        return None if pattern.reads_everything else pattern

    @property
    def head_width(self) -> int:
        """K, the width of one head."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """G, the number of key/value heads."""
        return self.n_kv_heads if self.n_kv_heads is not None else self.n_heads


def check_counts(config: object, *names: str) -> None:
    """Raise `ConfigError` for a count below 1, or larger than any machine could hold."""
    at_least(config, "", 1, *names)
    for name in names:
        at_most(config, "", MOST_PLACES if name in PLACES else MOST_WIDE, name)


def nearest_divisor(whole: int, wanted: int) -> int:
    """The divisor of `whole` nearest to `wanted`."""
    return min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: (abs(n - wanted), n))


def round_to_multiple(value: int, of: int) -> int:
    """Round `value` to a positive multiple of `of`."""
    return max(of, round(value / of) * of)
