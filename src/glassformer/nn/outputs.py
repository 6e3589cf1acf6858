"""Settings of the heads: one small frozen dataclass for each head in `HEADS`. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from typing import Any, ClassVar

from glassformer.base.registry import lookup
from glassformer.base.schemes import MOST_WIDE
from glassformer.base.settings import built, check, like, setting


@dataclass(frozen=True)
class Lm:
    """Language model: a score for each token of the vocabulary, at each place."""

    kind: ClassVar[str] = "lm"
    transform: str | None = None
    """Put a dense layer with this activation, and a norm, before a head over tokens, as in BERT; unset: none."""

    def __post_init__(self) -> None:
        check(self, "head")


@dataclass(frozen=True)
class Classify:
    """Classification of sequences: one score for each label, per sequence."""

    kind: ClassVar[str] = "classify"
    n_labels: int = setting(MISSING, 2, MOST_WIDE, why=", or there is nothing to decide", recipe=False)
    """Labels to choose from."""
    pooling: str = setting("mean", known="glassformer.nn.heads:POOLINGS", recipe="pooling")
    """How a classifier pools a text into one vector: first (that of <bos>), mean or attention."""
    dropout: float = setting(0.0, 0.0, below=1.0, advice="0.1")
    """Dropout probability of what a head that is not over tokens reads, such as a classifier's pooled vector."""

    def __post_init__(self) -> None:
        check(self, "head")


@dataclass(frozen=True)
class Tag:
    """Tagging: a score for each label, at each place."""

    kind: ClassVar[str] = "tag"
    n_labels: int = like(Classify, "n_labels")
    dropout: float = like(Classify, "dropout")

    def __post_init__(self) -> None:
        check(self, "head")


@dataclass(frozen=True)
class Regress:
    """Regression: one or more numbers per sequence or, with the pooling "none", at each place."""

    kind: ClassVar[str] = "regress"
    n_numbers: int = setting(1, 1, MOST_WIDE, recipe=False)
    """Numbers that it gives."""
    pooling: str = like(Classify, "pooling")
    dropout: float = like(Classify, "dropout")

    def __post_init__(self) -> None:
        check(self, "head")


Output = Lm | Classify | Tag | Regress
OUTPUTS: dict[str, type[Output]] = {each.kind: each for each in (Lm, Classify, Tag, Regress)}


def output_to_dict(output: Output) -> dict[str, Any]:
    """Convert to plain values, as stored in `config.json`."""
    return {"kind": output.kind, **asdict(output)}


def output_from_dict(values: Mapping[str, Any]) -> Output:
    """The inverse of `output_to_dict`. Errors: `ConfigError` for an unknown kind or key, with the most similar one."""
    known = dict(values)
    cls = lookup(OUTPUTS, str(known.pop("kind", None)), "head.kind")
    return built(cls, known, "head")
