"""The `[model]` section of a recipe: a flat list of settings, used for both stacks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from glassformer.base.contradictions import differs
from glassformer.base.errors import ConfigError
from glassformer.base.schemes import MOST_WIDE
from glassformer.base.settings import Section, check, flat, nested, setting
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Classify, Lm, Output, Regress, Tag

LOOK_BACK = ("sinks", "stride", "block", "summary")
"""Settings of causal attention; in an encoder-decoder only the decoder uses them."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(StackConfig)}
SOME = 8
"""A number of tokens that stands for any."""
ACTING = "act"
UNSET = "1, or remove it to get model.n_layers"


class Layout(NamedTuple):
    """How samples are laid out for a model: the stacks that read and write them, what is read, and what is given."""

    encoder: bool = False
    decoder: bool = False
    head: str = "lm"
    """The kind of head; `ACTING`: numbered actions or the numbers of one, at each place."""
    tokens: bool = True
    """Whether tokens are read; otherwise vectors of numbers are."""
    blanks: bool = False
    """Whether places of what is read are filled in."""


READ_BY: dict[str, Callable[[Layout], bool]] = {
    "encoder_layers": lambda layout: layout.encoder,
    "decoder_layers": lambda layout: layout.decoder,
    "pooling": lambda layout: layout.head in POOLED,
    "head_dropout": lambda layout: layout.head != Lm.kind,
    **dict.fromkeys(("head_transform", "tie_embeddings", "scale_embeddings"), lambda layout: layout.tokens),
    "silent": lambda layout: layout.head == Lm.kind,
}
"""Settings that only some layouts use, and whether one of them does."""
POOLED = (Classify.kind, Regress.kind)
"""Heads that answer once for a sequence."""


def unread(layout: Layout) -> list[str]:
    """The settings that a layout does not use."""
    return [name for name, reads in READ_BY.items() if not reads(layout)]


@dataclass(frozen=True)
class ModelRecipe(Section, of=(StackConfig, ModelConfig)):
    """Settings of `[model]`. Both stacks get the same, except the number of layers and causal attention patterns."""

    encoder_layers: int | None = setting(None, 1, MOST_WIDE, advice=UNSET, after="n_layers")
    """Blocks in the encoder; unset: n_layers."""
    decoder_layers: int | None = setting(None, 1, MOST_WIDE, advice=UNSET)
    """Blocks in the decoder; unset: n_layers."""

    def __post_init__(self) -> None:
        check(self, "model")

    def build(
        self,
        layout: Layout,
        vocab_size: int | None,
        source_vocab_size: int | None = None,
        n_labels: int | None = None,
        *,
        n_features: int | None = None,
        n_numbers: int | None = None,
    ) -> ModelConfig:
        """Make the model's config for a data layout, its vocabularies and its labels.

        An encoder reads both ways, a decoder is causal. Where no tokens are read, each place has `n_features` numbers.
        The head scores `n_labels` labels or actions, or gives `n_numbers` numbers.
        """
        both: dict[str, Any] = nested(StackConfig, self) | {"n_features": n_features}
        of_encoder: dict[str, Any] = both | ({name: DEFAULTS[name] for name in LOOK_BACK} if layout.decoder else {})
        encoder = StackConfig(**of_encoder | self._layers("encoder")) if layout.encoder else None
        decoder = StackConfig(**both | self._layers("decoder"), causal=True) if layout.decoder else None
        whole: dict[str, Any] = {
            each.name: getattr(self, each.name) for each in flat(ModelConfig) if len(each.path) == 1
        }
        whole["tie_embeddings"] = self.tie_embeddings and layout.tokens
        return ModelConfig(
            vocab_size=vocab_size,
            encoder=encoder,
            decoder=decoder,
            source_vocab_size=source_vocab_size,
            head=self._head(layout.head, n_labels, n_numbers),
            **whole,
        )

    def sketch(self, layout: Layout) -> ModelConfig:
        """Make a config for made-up data of a layout, to refuse what is impossible before the data are read.

        The sizes of a vocabulary and of a head do not matter to that.
        """
        vocabulary, n_features = (SOME, None) if layout.tokens else (None, 1)
        return self.build(layout, vocabulary, n_labels=2, n_features=n_features, n_numbers=1)

    def refuse_unread(self, name: str, layouts: Mapping[str, Layout]) -> None:
        """Refuse settings that the layout `name` does not use, in place of ignoring them; `layouts`: all there are."""
        for each in unread(layouts[name]):
            if differs(self, each):
                users = " or ".join(repr(other) for other, layout in layouts.items() if READ_BY[each](layout))
                raise ConfigError(
                    f"model.{each} belongs to data.layout={users}; got model.{each}={getattr(self, each)!r} "
                    f"with data.layout={name!r}, which does not use it. Remove model.{each}."
                )

    def _head(self, kind: str, n_labels: int | None, n_numbers: int | None) -> Output:
        if kind == Lm.kind:
            return Lm(self.head_transform)
        if self.head_transform is not None:
            raise ConfigError(
                "model.head_transform belongs to a head over tokens, which a classifier does not have; got "
                f"{self.head_transform!r}. Remove model.head_transform."
            )
        if kind == Classify.kind:
            return Classify(n_labels or 0, self.pooling, self.head_dropout)
        if n_labels is not None and kind != Regress.kind:
            return Tag(n_labels, self.head_dropout)
        return Regress(n_numbers or 0, "none" if kind == ACTING else self.pooling, self.head_dropout)

    def _layers(self, side: str) -> dict[str, Any]:
        """The number of blocks of a stack."""
        own: int | None = getattr(self, f"{side}_layers")
        return {"n_layers": self.n_layers if own is None else own}
