"""What a model is: frozen values, checked when made. The shape of the config is the shape of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import suggestion
from glassformer.model.outputs import Lm, Output, output_from_dict, output_to_dict

Config = TypeVar("Config", bound="StackConfig | ModelConfig")


@dataclass(frozen=True)
class StackConfig:
    """One stack of blocks: an encoder, or a decoder (causal, and reading the memory of an encoder if there is one).

    Widths are counts of numbers, `max_len` a count of positions. Errors: `ConfigError` for values that contradict
    each other; names (`norm`, `activation`, `positions`, `attention`) are looked up when the stack is built.
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
    final_norm: bool | None = None  # None: as the placement asks (pre: yes, post: no)
    activation: str = "relu"
    positions: str = "sinusoidal"
    max_len: int | None = None  # positions the stack accepts; None: any length (learned positions need a number)
    causal: bool = False
    window: int | None = None  # a query reads this many positions up to its own; None: all
    bias: bool = True
    attention: str = "auto"  # backend of the softmax rule

    def __post_init__(self) -> None:
        sizes = ("d_model", "n_heads", "n_layers", "d_ff", "n_kv_heads", "d_head", "max_len", "window", "n_features")
        for name in sizes:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}.")
        for name in ("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout"):
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
    head: Output = field(default_factory=Lm)  # what is answered: Lm, Classify, Tag or Regress

    def __post_init__(self) -> None:
        for name in ("vocab_size", "source_vocab_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1; got {value}.")
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
                known[side] = strictly(StackConfig, known[side], side)
        if known.get("head") is not None:
            known["head"] = output_from_dict(known["head"])
        return strictly(cls, known, "model")


def strictly(cls: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """`cls(**values)`, refusing a key that `cls` does not have."""
    names = {field.name for field in fields(cls)}
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
