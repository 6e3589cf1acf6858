"""The settings of a family as a table: each of ours beside theirs in config.json, read and written by the same row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glassformer.store.families.values import Values

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "linear": "identity",
}
"""Hugging Face's names of activations, and ours; of several names for one of ours, the first is written."""
Ours = Mapping[str, Any]
"""Settings of `StackConfig` and `ModelConfig` by name."""
Usual = int | Callable[[Ours], int] | None
"""The value of a setting that config.json does not have, or a function of the settings in the rows above it."""


@dataclass(frozen=True)
class Row(ABC):
    """One setting, and what it is called in a config.json."""

    ours: str
    """Our name."""

    @abstractmethod
    def read(self, values: Values, found: Ours) -> Any:
        """Our value; `found` are the settings of the rows above. Errors: `CheckpointError`."""

    @abstractmethod
    def write(self, value: Any) -> dict[str, Any]:
        """Their settings for our value."""

    def needs(self, value: Any) -> str | None:
        """What the family needs instead of this value, in words; None if its models may have the value."""
        return None


@dataclass(frozen=True)
class Whole(Row):
    """A whole number of at least 1, under the first of `theirs` that is set."""

    theirs: tuple[str, ...]
    usual: Usual = None
    implied: bool = False
    """Whether the usual value is None in our configs."""

    def read(self, values: Values, found: Ours) -> int | None:
        usual = self.usual(found) if callable(self.usual) else self.usual
        value = values.whole(*self.theirs, usual=usual)
        return None if self.implied and value == usual else value

    def write(self, value: Any) -> dict[str, Any]:
        return {self.theirs[0]: value}


@dataclass(frozen=True)
class WholeOrNone(Row):
    """A whole number of at least 1, or none."""

    theirs: str

    def read(self, values: Values, found: Ours) -> int | None:
        return None if values.given.get(self.theirs) is None else values.whole(self.theirs)

    def write(self, value: Any) -> dict[str, Any]:
        return {self.theirs: value}


@dataclass(frozen=True)
class Number(Row):
    """A number of at least 0, one here for all of `theirs`, which must not differ."""

    theirs: tuple[str, ...]
    usual: float

    def read(self, values: Values, found: Ours) -> float:
        first, *others = self.theirs
        number = values.number(first, self.usual)
        for other in others:
            if values.number(other, number) != number:
                raise values.wrong(other, f"{number}, as {first} is: one number here", values.given[other])
        return number

    def write(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.theirs, value)


@dataclass(frozen=True)
class Flag(Row):
    """True or false."""

    theirs: str
    usual: bool

    def read(self, values: Values, found: Ours) -> bool:
        return values.flag(self.theirs, usual=self.usual)

    def write(self, value: Any) -> dict[str, Any]:
        return {self.theirs: value}


@dataclass(frozen=True)
class Activation(Row):
    """The name of an activation."""

    theirs: str
    usual: str

    def read(self, values: Values, found: Ours) -> str:
        return values.our_name(self.theirs, ACTIVATIONS, self.usual)

    def write(self, value: Any) -> dict[str, Any]:
        return {self.theirs: next(theirs for theirs, each in ACTIVATIONS.items() if each == value)}

    def needs(self, value: Any) -> str | None:
        known = dict.fromkeys(ACTIVATIONS.values())
        return None if value in known else f"one of {', '.join(known)}"
