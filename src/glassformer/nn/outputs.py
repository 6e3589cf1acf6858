"""Settings of the heads: one small frozen dataclass for each head in `HEADS`. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from glassformer.base.bounds import at_least, at_most, in_digits
from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup, suggestion
from glassformer.base.typed import check_types
from glassformer.nn.stack_config import MOST_WIDE


@dataclass(frozen=True)
class Lm:
    """Language model: a score for each token of the vocabulary, at each place."""

    kind: ClassVar[str] = "lm"
    transform: str | None = None  # activation of a dense layer and norm before the scores (BERT); None: no such layer


@dataclass(frozen=True)
class Classify:
    """Classification of sequences: one score for each label, per sequence."""

    kind: ClassVar[str] = "classify"
    n_labels: int
    pooling: str = "mean"  # of the stack's vectors: first, mean or attention
    dropout: float = 0.0  # on the pooled vector

    def __post_init__(self) -> None:
        check_types(self)
        check_labels(self.n_labels)
        at_most(self, "head", MOST_WIDE, "n_labels")
        check_dropout(self.dropout)


@dataclass(frozen=True)
class Tag:
    """Tagging: a score for each label, at each place."""

    kind: ClassVar[str] = "tag"
    n_labels: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        check_labels(self.n_labels)
        at_most(self, "head", MOST_WIDE, "n_labels")
        check_dropout(self.dropout)


@dataclass(frozen=True)
class Regress:
    """Regression: one or more numbers per sequence or, without pooling, at each place."""

    kind: ClassVar[str] = "regress"
    n_numbers: int = 1
    pooling: str = "mean"  # of the stack's vectors: first, mean or attention; none: numbers at each place
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, "head", 1, "n_numbers")
        at_most(self, "head", MOST_WIDE, "n_numbers")
        check_dropout(self.dropout)


Output = Lm | Classify | Tag | Regress
OUTPUTS: dict[str, type[Output]] = {each.kind: each for each in (Lm, Classify, Tag, Regress)}


def check_labels(n_labels: int) -> None:
    """Refuse fewer than two labels."""
    if n_labels < 2:
        raise ConfigError(
            f"head.n_labels must be at least 2, or there is nothing to decide; got {in_digits(n_labels)}. "
            "Try n_labels=2."
        )


def check_dropout(dropout: float, name: str = "head.dropout") -> None:
    """Refuse a value that is no dropout probability; `name` is the setting's name in the error."""
    if not 0.0 <= dropout < 1.0:
        raise ConfigError(f"{name} must be at least 0 and below 1; got {dropout}. Try {name}=0.1.")


def output_to_dict(output: Output) -> dict[str, Any]:
    """Convert to plain values, as stored in `config.json`."""
    return {"kind": output.kind, **asdict(output)}


def output_from_dict(values: Mapping[str, Any]) -> Output:
    """The inverse of `output_to_dict`. Errors: `ConfigError` for an unknown kind or key, with the most similar one."""
    known = dict(values)
    cls = lookup(OUTPUTS, str(known.pop("kind", None)), "head.kind")
    names = {each.name for each in fields(cls)}
    for key in known:
        if key not in names:
            raise ConfigError(f"head.{key} is not a setting of {cls.kind!r}. {suggestion(key, names)}")
    return cls(**known)
