"""What a model is: frozen values, checked when made. The shape of the config is the shape of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.order import RelativeConfig, RotaryConfig
from glassformer.foundation.pattern import Pattern
from glassformer.foundation.registry import suggestion
from glassformer.foundation.typed import check_types
from glassformer.model.contradictions import check_attention_rule, check_experts, check_residual
from glassformer.model.deepnorm import DeepNorm, deepnorm
from glassformer.model.order import check_order
from glassformer.model.outputs import Lm, Output, output_from_dict, output_to_dict

Config = TypeVar("Config", bound="StackConfig | ModelConfig | RotaryConfig | RelativeConfig")

COUNTS = (
    *("d_model", "n_heads", "n_layers", "d_ff", "n_kv_heads", "d_head", "max_len", "window", "stride", "block"),
    *("n_experts", "experts_per_token", "n_features"),
)
"""Settings that count something, and begin at 1."""
PLACES, MOST_PLACES = ("max_len", "window", "stride", "block"), 2**31 - 1
MOST_WIDE = 2**20
"""Of widths, heads, blocks and experts: one matrix twice as wide would have 16 TB."""


@dataclass(frozen=True)
class StackConfig:
    """One stack of blocks: an encoder, or a decoder (causal, and reading the memory of an encoder if there is one).

    Widths are counts of numbers, `max_len` a count of positions. Errors: `ConfigError` for values that contradict
    each other; names (`norm`, `activation`, `positions`, `attention_rule`, ...) are looked up when the stack is built.
    """

    d_model: int = 256
    n_heads: int = 4
    n_layers: int = 3
    d_ff: int = 1024
    n_features: int | None = None  # None: the stack reads tokens; else vectors of so many numbers
    n_kv_heads: int | None = None  # None: as many as n_heads; fewer is grouped-query attention
    d_head: int | None = None  # None: d_model / n_heads
    dropout: float = 0.1  # on the embedding and on the output of each branch (Vaswani et al. 2017, section 5.4)
    attention_dropout: float = 0.0  # on attention weights; above 0 it leaves the fused kernel
    feed_forward_dropout: float = 0.0  # between the two maps of the feed-forward; the paper has none there
    token_dropout: float = 0.0  # on whole tokens, whose embedding is then zero (Gal and Ghahramani 2016, section 4)
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_placement: str = "pre"
    final_norm: bool | None = None  # None: as the placement asks (post: no, all others: yes)
    qk_norm: str = "none"  # norm of each head's queries and keys, by the names of `norm`
    residual_scale: float = 1.0  # what multiplies x where a branch is added to it; ModelConfig.deepnorm sets it
    stochastic_depth: float = 0.0  # chance that a sequence skips a branch of the last block; linear from the first
    activation: str = "relu"
    feed_forward: str = "plain"
    n_experts: int | None = None  # of feed_forward="experts", each d_ff wide; the next four are theirs, too
    experts_per_token: int = 2
    expert: str = "plain"  # or "gated"
    balance_loss: float = 0.01  # weight of the load-balancing loss (Fedus et al. 2022, alpha of equation 4)
    router_z_loss: float = 0.0  # weight of the router's z-loss (Zoph et al. 2022, equation 5)
    positions: str = "sinusoidal"
    rotary: RotaryConfig = field(default_factory=RotaryConfig)  # of positions="rotary"
    relative: RelativeConfig = field(default_factory=RelativeConfig)  # of positions="t5" and "shaw"
    max_len: int | None = None  # positions the stack accepts; None: any length (learned positions need a number)
    causal: bool = False
    window: int | None = None  # a query reads this many positions up to its own; None: all
    dilation: int = 1  # positions from one key of the window to the next
    stride: int | None = None  # the last `stride` keys, and before them each stride-th; causal
    block: int | None = None  # the keys of a query's own block, and the last `summary` of each block; causal
    summary: int = 1
    global_tokens: int = 0  # the first tokens, which read everything and are read by all, beside a window
    sinks: int = 0  # the first keys, which stay readable beside a causal window
    bias: bool = True
    attention_rule: str = "softmax"  # what is computed; `attention` is how
    attention: str = "auto"  # backend of the rule
    softcap: float = 50.0  # what scores are kept within under attention_rule="softcap"

    def __post_init__(self) -> None:
        check_types(self)
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}.")
            if value is not None and value > (most := MOST_PLACES if name in PLACES else MOST_WIDE):
                raise ConfigError(f"{name} must be at most {most}; got one of {value.bit_length()} bits.")
        for name in ("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}.")
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
        """What a mixture of experts wants to know beyond any feed-forward; empty for the others."""
        names = ("n_experts", "experts_per_token", "expert")
        return {} if self.n_experts is None else {name: getattr(self, name) for name in names}

    @property
    def pattern(self) -> Pattern | None:
        """The keys that a query may read by its place, where that is less than all. Errors: `ConfigError`."""
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


@dataclass(frozen=True)
class ModelConfig:
    """A whole model: an encoder, a decoder, or both, and a head: over `vocab_size` tokens, labels or numbers."""

    vocab_size: int | None = None  # None: a model that neither reads nor writes tokens
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    source_vocab_size: int | None = None  # None: the encoder reads the same vocabulary as the head writes
    tie_embeddings: bool = True  # head and target embedding are one matrix (Press and Wolf 2017)
    share_embeddings: bool = True  # encoder and decoder embed with one matrix, where the vocabulary is one
    scale_embeddings: bool = True  # embeddings times sqrt(d_model) (Vaswani et al. 2017, section 3.4)
    head_bias: bool = False
    init: str = "xavier"
    deepnorm: bool = False  # alpha and beta of Wang et al. 2022, for post-norm stacks and init="xavier"
    head: Output = field(default_factory=Lm)  # what is answered: Lm, Classify, Tag or Regress

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("vocab_size", "source_vocab_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}.")
            if value is not None and value > (most := MOST_PLACES if name in PLACES else MOST_WIDE):
                raise ConfigError(f"{name} must be at most {most}; got one of {value.bit_length()} bits.")
        if self.encoder is None and self.decoder is None:
            raise ConfigError(
                "A model needs an encoder, a decoder or both; got neither. Give encoder=StackConfig(...)."
            )
        if self.encoder and self.decoder and self.encoder.d_model != self.decoder.d_model:
            raise ConfigError(
                f"encoder and decoder must have one d_model, as the decoder reads the encoder's memory; "
                f"got {self.encoder.d_model} and {self.decoder.d_model}. Give both the same."
            )
        if self.encoder and self.encoder.causal and self.decoder:
            raise ConfigError(
                "The encoder of an encoder-decoder reads both ways; got encoder.causal=True. Set it to False."
            )
        if self.decoder and not self.decoder.causal:
            object.__setattr__(self, "decoder", replace(self.decoder, causal=True))
        if self.deepnorm:
            self._set_deepnorm()
        if not self.one_vocabulary and not (self.encoder and self.decoder):
            raise ConfigError(
                f"source_vocab_size ({self.source_vocab_size}) belongs to an encoder-decoder; "
                "a model of one stack has vocab_size alone. Leave it out."
            )
        self._check_ends()

    def _check_ends(self) -> None:
        """What is read and what is answered must fit together."""
        reads_features = self.stack.n_features is not None
        if self.vocab_size is None and (isinstance(self.head, Lm) or self.reads_tokens):
            what = "answers" if isinstance(self.head, Lm) else "reads"
            raise ConfigError(f"vocab_size must be given, as the model {what} tokens; got None. Try vocab_size=8000.")
        if isinstance(self.head, Lm) and self.tie_embeddings and reads_features:
            raise ConfigError(
                "tie_embeddings makes the head of the embedding's matrix, but its stack reads features "
                f"(n_features={self.stack.n_features}) and has none. Set tie_embeddings=False."
            )
        if getattr(self.head, "pooling", None) == "first" and self.stack.causal:
            raise ConfigError(
                "head.pooling='first' takes the first vector, which in a causal stack has read nothing but its own "
                "place. Take pooling='mean' or 'attention', or a stack that reads both ways."
            )

    @property
    def reads_tokens(self) -> bool:
        """Whether at least one stack reads tokens."""
        return any(each is not None and each.n_features is None for each in (self.encoder, self.decoder))

    def _set_deepnorm(self) -> None:
        if self.init != "xavier":
            raise ConfigError(f"deepnorm's gain is one of Xavier weights; got init={self.init!r}. Try init='xavier'.")
        for side, constants in zip(("encoder", "decoder"), self.deepnorm_constants, strict=True):
            stack: StackConfig | None = getattr(self, side)
            if stack is None:
                continue
            if stack.norm_placement != "post" or stack.norm == "none":
                raise ConfigError(
                    f"deepnorm normalises after the sum; got {side}.norm_placement={stack.norm_placement!r} and "
                    f"{side}.norm={stack.norm!r}. Try norm_placement='post' with norm='layer'."
                )
            if stack.residual_scale not in (1.0, constants.alpha):
                raise ConfigError(
                    f"deepnorm sets {side}.residual_scale to {constants.alpha:.4g}; got {stack.residual_scale}. "
                    "Leave it out, or try residual_scale=1.0."
                )
            object.__setattr__(self, side, replace(stack, residual_scale=constants.alpha))

    @property
    def deepnorm_constants(self) -> tuple[DeepNorm, DeepNorm]:
        """Those of the encoder and of the decoder, whether `deepnorm` is set or not."""
        return deepnorm(*(0 if stack is None else stack.n_layers for stack in (self.encoder, self.decoder)))

    @property
    def stack(self) -> StackConfig:
        """The stack whose vectors the head reads: the decoder's where there is one."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def one_vocabulary(self) -> bool:
        """Whether source and target tokens are the same tokens."""
        return self.source_vocab_size in (None, self.vocab_size)

    @property
    def shares_embeddings(self) -> bool:
        """Whether encoder and decoder embed with one matrix."""
        stacks = (self.encoder, self.decoder)
        read_tokens = all(each is not None and each.n_features is None for each in stacks)
        return read_tokens and self.share_embeddings and self.one_vocabulary

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `config.json` holds them."""
        return asdict(self) | {"head": output_to_dict(self.head)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`. Errors: `ConfigError` for an unknown key, with the nearest known one."""
        known = dict(values)
        for side in ("encoder", "decoder"):
            if known.get(side) is not None:
                known[side] = _stack(known[side], side)
        if known.get("head") is not None:
            known["head"] = output_from_dict(known["head"])
        return strictly(cls, known, "model")


def _stack(values: Mapping[str, Any], side: str) -> StackConfig:
    inner = {"rotary": RotaryConfig, "relative": RelativeConfig}
    made = {name: strictly(inner[name], values[name], f"{side}.{name}") for name in inner if name in values}
    return strictly(StackConfig, {**values, **made}, side)


def strictly(cls: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """`cls(**values)`, refusing a key that `cls` does not have."""
    names = {each.name for each in fields(cls)}
    for key in values:
        if key not in names:
            raise ConfigError(f"{where}.{key} is not a setting. {suggestion(key, names)}")
    return cls(**values)


def nearest_divisor(whole: int, wanted: int) -> int:
    """The divisor of `whole` that is nearest to `wanted`."""
    return min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: (abs(n - wanted), n))


def round_to_multiple(value: int, of: int) -> int:
    """`value` rounded to a positive multiple of `of`."""
    return max(of, round(value / of) * of)
