"""The configuration of a model: frozen dataclasses, checked when made, with the same structure as the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from glassformer.base.errors import ConfigError
from glassformer.base.order import RelativeConfig, RotaryConfig
from glassformer.base.registry import suggestion
from glassformer.base.typed import check_types
from glassformer.nn.deepnorm import DeepNorm, deepnorm
from glassformer.nn.outputs import Lm, Output, output_from_dict, output_to_dict
from glassformer.nn.stack_config import StackConfig, check_counts

__all__ = ["ModelConfig", "StackConfig"]

Config = TypeVar("Config", bound="StackConfig | ModelConfig | RotaryConfig | RelativeConfig")


@dataclass(frozen=True)
class ModelConfig:
    """A whole model: an encoder, a decoder or both, and a head over `vocab_size` tokens, labels or numbers."""

    vocab_size: int | None = None  # None: the model neither reads nor writes tokens
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    source_vocab_size: int | None = None  # None: source and target share one vocabulary
    tie_embeddings: bool = True  # head and target embedding share one matrix (Press and Wolf 2017)
    share_embeddings: bool = True  # encoder and decoder embeddings share one matrix, if they share the vocabulary
    scale_embeddings: bool = True  # embeddings times sqrt(d_model) (Vaswani et al. 2017, section 3.4)
    scale_head: bool = False  # a tied head divides its input by sqrt(d_model) (T5, Raffel et al. 2020)
    head_bias: bool = False
    silent: str = ""  # ids that the head never predicts, as "0,1,3": special tokens that an imported model lacks
    init: str = "xavier"
    deepnorm: bool = False  # alpha and beta of Wang et al. 2022, for post-norm stacks and init="xavier"
    head: Output = field(default_factory=Lm)  # Lm, Classify, Tag or Regress

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "vocab_size", "source_vocab_size")
        if self.encoder is None and self.decoder is None:
            raise ConfigError(
                "A model needs an encoder, a decoder or both; got neither. Give encoder=StackConfig(...)."
            )
        if self.encoder and self.decoder and self.encoder.d_model != self.decoder.d_model:
            raise ConfigError(
                "encoder and decoder must have the same d_model, as the decoder reads the encoder's memory; got "
                f"{self.encoder.d_model} and {self.decoder.d_model}. Make them equal."
            )
        if self.encoder and self.encoder.causal and self.decoder:
            raise ConfigError(
                "The encoder of an encoder-decoder reads both ways; got encoder.causal=True. Set encoder.causal=False."
            )
        if self.decoder and not self.decoder.causal:
            object.__setattr__(self, "decoder", replace(self.decoder, causal=True))
        if self.deepnorm:
            self._check_deepnorm()
        self._check_init()
        if not self.one_vocabulary and not (self.encoder and self.decoder):
            raise ConfigError(
                f"source_vocab_size ({self.source_vocab_size}) belongs to an encoder-decoder; a model with one stack "
                "has only vocab_size. Remove source_vocab_size."
            )
        self._check_ends()
        self._check_head()

    def _check_ends(self) -> None:
        """Refuse inputs and a head that do not fit together."""
        reads_features = self.stack.n_features is not None
        if self.vocab_size is None and (isinstance(self.head, Lm) or self.reads_tokens):
            what = "outputs" if isinstance(self.head, Lm) else "reads"
            raise ConfigError(f"vocab_size must be given, as the model {what} tokens; got None. Try vocab_size=8000.")
        if isinstance(self.head, Lm) and self.tie_embeddings and reads_features:
            raise ConfigError(
                "tie_embeddings=True makes the head share the embedding's matrix, but the stack reads features "
                f"(n_features={self.stack.n_features}) and has no embedding. Set tie_embeddings=False."
            )
        if self.encoder and self.decoder and (self.encoder.n_segments or self.decoder.n_segments):
            raise ConfigError(
                "n_segments marks the parts of a text in a model with one stack; an encoder-decoder reads its two "
                "texts in two stacks. Remove n_segments, or use one stack."
            )

    def _check_head(self) -> None:
        """Refuse head settings that lack something they need, or that the head would ignore."""
        if self.scale_head and not (isinstance(self.head, Lm) and self.tie_embeddings):
            raise ConfigError(
                "scale_head=True needs the head of a language model, tied to the embedding; got head "
                f"{self.head.kind!r} and tie_embeddings={self.tie_embeddings}. Set scale_head=False, or "
                "tie_embeddings=True with head=Lm()."
            )
        self._check_silent()
        if getattr(self.head, "transform", None) is not None and self.stack.norm == "none":
            raise ConfigError(
                "head.transform includes a norm, of the same kind as in the stack; got norm='none'. Remove "
                "head.transform, or try norm='layer'."
            )
        if getattr(self.head, "pooling", None) == "first" and self.stack.causal:
            raise ConfigError(
                "pooling='first' takes the first vector, which in a causal stack has read only its own token. Use "
                "pooling='mean' or 'attention', or a stack that reads both ways."
            )

    def _check_silent(self) -> None:
        if not all(each.isascii() and each.isdecimal() for each in self.silent.split(",") if self.silent):
            raise ConfigError(f"silent must be token ids with commas between them; got {self.silent!r:.60}. Try '0,1'.")
        if self.silent and (not isinstance(self.head, Lm) or self.head_bias):
            raise ConfigError(
                "silent takes the place of the bias of a head over tokens; got head "
                f"{self.head.kind!r} with head_bias={self.head_bias}. Remove silent."
            )

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """The ids that the head never predicts."""
        return tuple(map(int, self.silent.split(","))) if self.silent else ()

    @property
    def reads_tokens(self) -> bool:
        """Whether at least one stack reads tokens."""
        return any(each is not None and each.n_features is None for each in (self.encoder, self.decoder))

    def _check_init(self) -> None:
        """Refuse branches that start at zero under a norm: it would divide their first gradients by almost nothing."""
        for side in ("encoder", "decoder") if self.init == "zero" else ():
            stack: StackConfig | None = getattr(self, side)
            if stack and stack.norm != "none" and stack.norm_placement in ("output", "sandwich"):
                raise ConfigError(
                    f"init='zero' needs branches without a norm after them; got {side}.norm_placement="
                    f"{stack.norm_placement!r}. Try norm_placement='pre', or init='normal'."
                )

    def _check_deepnorm(self) -> None:
        if self.init != "xavier":
            raise ConfigError(
                f"deepnorm=True scales the weights of Xavier initialisation; got init={self.init!r}. Try init='xavier'."
            )
        for side, constants in zip(("encoder", "decoder"), self.deepnorm_constants, strict=True):
            stack: StackConfig | None = getattr(self, side)
            if stack is None:
                continue
            if stack.norm_placement != "post" or stack.norm == "none":
                raise ConfigError(
                    f"deepnorm=True needs a norm after the sum; got {side}.norm_placement={stack.norm_placement!r} and "
                    f"{side}.norm={stack.norm!r}. Try norm_placement='post' with norm='layer'."
                )
            if stack.residual_scale != 1.0:
                raise ConfigError(
                    f"deepnorm=True sets the residual scale of the {side} itself ({constants.alpha:.4g}); got "
                    f"{side}.residual_scale={stack.residual_scale}. Remove residual_scale."
                )

    @property
    def deepnorm_constants(self) -> tuple[DeepNorm, DeepNorm]:
        """DeepNorm's constants for the encoder and the decoder, whether `deepnorm` is set or not."""
        return deepnorm(*(0 if stack is None else stack.n_layers for stack in (self.encoder, self.decoder)))

    @property
    def built_stacks(self) -> tuple[StackConfig | None, StackConfig | None]:
        """Encoder and decoder as they are built: with `deepnorm`, its alpha is their `residual_scale`."""
        if not self.deepnorm:
            return self.encoder, self.decoder
        encoder, decoder = (
            stack and replace(stack, residual_scale=constants.alpha)
            for stack, constants in zip((self.encoder, self.decoder), self.deepnorm_constants, strict=True)
        )
        return encoder, decoder

    @property
    def stack(self) -> StackConfig:
        """The stack whose vectors the head reads: the decoder if there is one, else the encoder."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    @property
    def one_vocabulary(self) -> bool:
        """Whether source and target share one vocabulary."""
        return self.source_vocab_size in (None, self.vocab_size)

    @property
    def shares_embeddings(self) -> bool:
        """Whether encoder and decoder share one embedding matrix."""
        stacks = (self.encoder, self.decoder)
        read_tokens = all(each is not None and each.n_features is None for each in stacks)
        return read_tokens and self.share_embeddings and self.one_vocabulary

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values, as stored in `config.json`."""
        return asdict(self) | {"head": output_to_dict(self.head)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`. Errors: `ConfigError` for an unknown key, with the most similar known one."""
        known = dict(values)
        for side in ("encoder", "decoder"):
            if known.get(side) is not None:
                known[side] = _stack(known[side], side)
        if known.get("deepnorm") is True:
            known |= _without_alpha(known.get("encoder"), known.get("decoder"))
        if known.get("head") is not None:
            known["head"] = output_from_dict(known["head"])
        return strictly(cls, known, "model")


def _stack(values: Mapping[str, Any], side: str) -> StackConfig:
    inner = {"rotary": RotaryConfig, "relative": RelativeConfig}
    made = {name: strictly(inner[name], values[name], f"{side}.{name}") for name in inner if name in values}
    return strictly(StackConfig, {**values, **made}, side)


def _without_alpha(encoder: StackConfig | None, decoder: StackConfig | None) -> dict[str, StackConfig | None]:
    """Remove DeepNorm's alpha from the stacks: old checkpoints stored it as the `residual_scale` that users set."""
    stacks = {"encoder": encoder, "decoder": decoder}
    constants = deepnorm(*(stack.n_layers if stack else 0 for stack in stacks.values()))
    return {
        side: replace(stack, residual_scale=1.0) if stack and stack.residual_scale == own.alpha else stack
        for (side, stack), own in zip(stacks.items(), constants, strict=True)
    }


def strictly(cls: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Return `cls(**values)`. Errors: `ConfigError` for a key that `cls` does not have."""
    names = {each.name for each in fields(cls)}
    for key in values:
        if key not in names:
            raise ConfigError(f"{where}.{key} is not a setting. {suggestion(key, names)}")
    return cls(**values)
