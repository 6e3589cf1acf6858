"""Foreign weights as data: how one table renames weights, reads settings and writes both back.

A family of models of another library has a row for each setting and a pattern for each name (`store/families.py`);
what is here reads these tables in both directions.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.base.errors import CheckpointError
from glassformer.base.schemes import SCALINGS, RotaryConfig
from glassformer.nn.config import ModelConfig, StackConfig

# Reading the settings in another library's config.json: each with its type checked, and none silently ignored.


class Values(NamedTuple):
    """The settings in a config.json, and where the file is. Errors of all methods: `CheckpointError` naming both."""

    given: Mapping[str, Any]
    path: Path
    inside: str = ""
    """The beginning of their full names, if they are not at the top of the file."""

    def whole(self, *names: str, usual: int | None = None) -> int:
        """The first of these settings that is set, a whole number of at least 1, or else `usual`."""
        name = next((each for each in names if self.given.get(each) is not None), names[0])
        value = self.given.get(name, usual)
        value = usual if value is None else value
        if type(value) is not int or value < 1:
            raise self.wrong(name, "a whole number of at least 1", value)
        return value

    def number(self, name: str, usual: float | None) -> float:
        """A finite number of at least 0."""
        value = self.given.get(name, usual)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
            raise self.wrong(name, "a number of at least 0", value)
        return float(value)

    def flag(self, name: str, *, usual: bool) -> bool:
        """True or false."""
        value = self.given.get(name, usual)
        if type(value) is not bool:
            raise self.wrong(name, "true or false", value)
        return value

    def our_name(self, name: str, table: Mapping[str, str], usual: str) -> str:
        """Our name for the function that a setting names."""
        value = self.given.get(name, usual)
        if not isinstance(value, str) or value not in table:
            raise self.wrong(name, f"one of {', '.join(table)}", value)
        return table[value]

    def refuse(self, **wanted: object) -> None:
        """Refuse settings with which the model would compute something that ours does not; `wanted` is what ours has.

        A setting that is not in the file counts as wanted, because that is the other library's default.
        """
        for name, value in wanted.items():
            if self.given.get(name, value) != value:
                raise self.wrong(name, f"{value!r}, as glassformer computes nothing else here", self.given[name])

    def wrong(self, name: str, wanted: str, value: object) -> CheckpointError:
        """The error for a setting that cannot be used."""
        return CheckpointError(
            f"{self.path}: {self.inside}{name} must be {wanted}; got {value!r:.80}. Import another model."
        )


# The settings of a family as a table: each of ours beside theirs in config.json, read and written by the same row.

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
    optional: bool = False
    """Whether there may be none."""

    def read(self, values: Values, found: Ours) -> int | None:
        if self.optional and values.given.get(self.theirs[0]) is None:
            return None
        usual = self.usual(found) if callable(self.usual) else self.usual
        value = values.whole(*self.theirs, usual=usual)
        return None if self.implied and value == usual else value

    def write(self, value: Any) -> dict[str, Any]:
        return {self.theirs[0]: value}


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


# Rotary positions in a config.json: `rope_theta` and `rope_scaling`, or both in `rope_parameters`; and ours.

BASE = 10_000.0
KINDS = {"default": "none", "linear": "linear", "yarn": "yarn", "llama3": "llama3"}
"""Their name of each scaling, and ours."""
TURNS = {"yarn": ("beta_slow", "beta_fast"), "llama3": ("low_freq_factor", "high_freq_factor")}
"""Their names of `slow_turns` and `fast_turns`, in the scalings that have them."""
LENGTH = "original_max_position_embeddings"
PLACES = ("rope_scaling", "rope_parameters")
"""Objects of settings for rotary positions; if a file has both, the first counts, as in transformers."""


@dataclass(frozen=True)
class Rotary(Row):
    """The row of rotary positions whose pairs are the two halves of a head."""

    base: str = "rope_theta"
    """Their setting for the base, if it is not in one of `PLACES`."""
    share: str = "partial_rotary_factor"
    """Their setting for the part of a head that is rotated."""
    partly: bool = False
    """Whether that may be less than all of it."""

    def read(self, values: Values, found: Ours) -> RotaryConfig:
        inner = self.inside(values)
        kind = "type" if inner.given.get("rope_type") is None else "rope_type"
        scaling = inner.our_name(kind, KINDS, "default")
        base = inner.number("rope_theta", values.number(self.base, BASE))
        share = inner.number("partial_rotary_factor", values.number(self.share, 1.0))
        if share != 1.0 and not self.partly:
            raise values.wrong(self.share, "1.0, as this family rotates whole heads", share)
        if scaling == "none":
            return RotaryConfig(base, share=share)
        values.refuse(**{LENGTH: None})  # would stand for the one inside
        if scaling not in TURNS:
            self.refuse_more(inner, ("factor",))
            return RotaryConfig(base, share=share, scaling=scaling, factor=inner.number("factor", None))
        self.refuse_more(inner, ("factor", LENGTH, *TURNS[scaling]))
        inner.refuse(**dict(zip(TURNS[scaling], SCALINGS[scaling] or (), strict=True)))
        length = inner.whole(LENGTH, usual=found["max_len"])
        factor = inner.number("factor", None)
        return RotaryConfig(base, share=share, scaling=scaling, factor=factor, original_max_len=length)

    @staticmethod
    def inside(values: Values) -> Values:
        """The settings in the object for rotary positions."""
        for place in PLACES:
            value = values.given.get(place)
            if value is not None and not isinstance(value, dict):
                raise values.wrong(place, "an object of settings, or null", value)
            if value:
                return Values(value, values.path, f"{place}.")
        return Values({}, values.path)

    @staticmethod
    def refuse_more(inner: Values, own: tuple[str, ...]) -> None:
        """Refuse settings that this scaling does not have here. Errors: `CheckpointError`."""
        known = {"type", "rope_type", "rope_theta", "partial_rotary_factor", *own}
        neutral = {"truncate": True}
        inner.refuse(**{name: neutral.get(name) for name in inner.given if name not in known})

    def write(self, value: Any) -> dict[str, Any]:
        own: dict[str, Any] = {"factor": value.factor}
        if value.scaling in TURNS:
            own |= {LENGTH: value.original_max_len, **dict(zip(TURNS[value.scaling], value.turns, strict=True))}
        if value.attention_factor is not None:
            own["attention_factor"] = value.attention_factor
        kind = next(theirs for theirs, each in KINDS.items() if each == value.scaling)
        scaled = {"rope_scaling": {"rope_type": kind, **own}} if value.scaling != "none" else {}
        return {self.base: value.base, self.share: value.share, **scaled}

    def needs(self, value: Any) -> str | None:
        known = list(KINDS.values())
        if value.layout != "half" or (value.share != 1.0 and not self.partly):
            return f"RotaryConfig(layout='half'{'' if self.partly else ', share=1.0'})"
        return None if value.scaling in known else f"RotaryConfig(scaling={' or '.join(map(repr, known))})"


# Renaming our parameters to other libraries' names by a table of patterns, and joining projections where they do.

Table = Sequence[tuple[str, str]]
"""Pairs of a regular expression and its replacement, applied to our names in order."""
PROJECTIONS = r"\b(query|key|value)\.(?:weight|bias)$"
"""The names of the projections that other libraries join, in this order."""


def rename(tensors: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Return the same tensors, each name rewritten by every pair of the table."""
    return {renamed(name, table): tensor for name, tensor in tensors.items()}


def renamed(name: str, table: Table) -> str:
    """Return a name rewritten by every pair of the table."""
    for ours, theirs in table:
        name = re.sub(ours, theirs, name)
    return name


def join_projections(tensors: Mapping[str, Tensor], into: str, pieces: int = 1) -> dict[str, Tensor]:
    """Join `query.`, `key.` and `value.` of each attention, in this order, as `into` (weights and biases).

    With several `pieces`, those of the first head come first, then those of the second, and so on.
    """
    joined: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        part = re.search(PROJECTIONS, name)
        if part and part[1] != "query":
            continue
        if part:
            parts = [tensors[name.replace("query.", f"{each}.")] for each in ("query", "key", "value")]
            name, tensor = name.replace("query.", into), torch.cat(parts)
            if pieces > 1:
                tensor = torch.cat([each.unflatten(0, (pieces, -1)) for each in parts], 1).flatten(0, 1)
        joined[name] = tensor
    return joined


def part_of(joined: Tensor, which: str, pieces: int = 1) -> Tensor:
    """The query, key or value in a tensor that `join_projections` made."""
    parts = joined.unflatten(0, (pieces, 3, -1)).unbind(1)
    return parts[("query", "key", "value").index(which)].flatten(0, 1)


# The shape of a family's models: what all of them have, what varies, and whether a model of ours has that shape.

NOT_COMPARED = frozenset(
    {
        *("dropout", "attention_dropout", "feed_forward_dropout", "token_dropout", "stochastic_depth", "init"),
        *("attention", "share_embeddings", "silent", "causal", "encoder", "decoder"),
        *("balance_loss", "router_z_loss", "experts_per_token", "expert", "softcap", "relative", "rotary", "summary"),
    }
)
"""Settings that are not compared, unless a row has them.

Those of the first line matter in training only, those of the second are the same in all decoders, change nothing (the
backend `attention` computes what its rule says) or are about the vocabulary (`silent`). Those of the last are allowed
only together with another setting, which is compared.
"""
STACK = tuple(each.name for each in fields(StackConfig))
MODEL = tuple(each.name for each in fields(ModelConfig))


class Misfit(NamedTuple):
    """A setting with which a model is none of a family, its value, and what the family needs."""

    name: str
    value: object
    needed: str

    def __str__(self) -> str:
        return f"model.{self.name}={self.needed} (here {self.value!r})"


class Shape(NamedTuple):
    """The settings of a family of decoders."""

    fixed: Mapping[str, object]
    """Settings of ours that all models of the family have; those in no row here have their defaults."""
    rows: Sequence[Row]
    """Settings that differ between its models."""
    wanted: Mapping[str, object]
    """Settings of theirs with which alone a model computes what ours does."""
    usual: Mapping[str, object] = {}
    """What theirs takes for settings that a file does not have, where that is not said above."""

    def read(self, values: Values) -> ModelConfig:
        """Make our config from theirs. Errors: `CheckpointError` for what ours cannot compute."""
        values = values._replace(given={**self.usual, **values.given})
        values.refuse(**self.wanted)
        found: dict[str, Any] = dict(self.fixed)
        for row in self.rows:
            found[row.ours] = row.read(values, found)
        stack = StackConfig(causal=True, **{name: found[name] for name in STACK if name in found})
        return ModelConfig(decoder=stack, **{name: found[name] for name in MODEL if name in found})

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return their settings for a config that has no `misfits`."""
        ours, written = resolved(config), {**self.wanted}
        for row in self.rows:
            written |= row.write(ours[row.ours])
        return written

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """List the settings with which a decoder over tokens computes what no model of the family does."""
        stack = config.stack
        usual = {**resolved(ModelConfig(1, decoder=StackConfig())), **self.fixed, **implied(stack)}
        rows, found = {row.ours: row for row in self.rows}, list[Misfit]()
        if stack.d_model % stack.n_heads:
            found.append(Misfit("d_model", stack.d_model, f"a multiple of n_heads, {stack.n_heads},"))
        for name, value in resolved(config).items():
            if name in rows:
                needed = rows[name].needs(value)
            elif name in NOT_COMPARED or value == usual[name]:
                continue
            else:
                needed = repr(usual[name])
            if needed is not None:
                found.append(Misfit(name, value, needed))
        return found


def resolved(config: ModelConfig) -> dict[str, Any]:
    """All settings of a decoder by name, with numbers in place of None where None stands for one."""
    own = {name: getattr(config.stack, name) for name in STACK} | {name: getattr(config, name) for name in MODEL}
    stack = config.stack
    given = {"n_kv_heads": stack.kv_heads, "d_head": stack.head_width, "final_norm": stack.final_norm is not False}
    scale = implied(stack)["attention_scale"] if stack.attention_scale is None else stack.attention_scale
    return own | given | {"attention_scale": scale}


def implied(stack: StackConfig) -> dict[str, Any]:
    """The values of settings that follow from others unless they are set."""
    width = stack.d_model // stack.n_heads
    return {"n_kv_heads": stack.n_heads, "d_head": width, "attention_scale": stack.head_width**-0.5}


# Renaming our weights to those of another family of models and back, and changing their layout to match.


class Family(NamedTuple):
    """The table from our names to a family's names, and how its layout differs."""

    names: Table
    joined: str | None = None
    """The family's name for query, key and value if they are one matrix."""
    by_head: bool = False
    """Whether that matrix has query, key and value of the first head, then those of the second, and so on."""
    turned: str | None = None
    """A pattern for the names of matrices that the family stores as [in, out]; ours are [out, in]."""
    unread: tuple[str, int] | None = None
    """A pattern for the names of position tables that begin with rows that no token reads, and the number of rows."""
    architecture: str = ""
    """The class of the models that can be imported and exported, as config.json names it; empty if none can."""
    shape: Shape | None = None
    """The settings of those models, read and written; None if none can."""
    base: str = ""
    """How their names begin, except the head's; files of the model without its head leave it out."""
    computed: str | None = None
    """A pattern for the names of tensors that hold nothing learned, such as masks; they are skipped on purpose."""

    def export(self, tensors: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
        """Return our tensors (weights or their gradients) under the family's names and in its layout."""
        joined = join_projections(tensors, self.joined, n_heads if self.by_head else 1) if self.joined else tensors
        renamed = rename(joined, self.names)
        return {name: self._laid_out(name, each) for name, each in renamed.items()}

    def load(self, tensors: Mapping[str, Tensor], names: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
        """The inverse of `export`: the family's tensors under each of our `names`, and in our layout."""
        found: dict[str, Tensor] = {}
        for name in names:
            part = re.search(PROJECTIONS, name) if self.joined else None
            theirs = renamed(name.replace(f"{part[1]}.", self.joined) if part and self.joined else name, self.names)
            tensor = self._as_ours(theirs, tensors[theirs])
            found[name] = part_of(tensor, part[1], n_heads if self.by_head else 1) if part else tensor
        return found

    def is_computed(self, name: str) -> bool:
        """Whether one of their tensors holds nothing learned."""
        return self.computed is not None and re.search(self.computed, name) is not None

    def _laid_out(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return torch.cat([tensor.new_zeros(self.unread[1], tensor.shape[1]), tensor])
        return tensor

    def _as_ours(self, name: str, tensor: Tensor) -> Tensor:
        if self.turned is not None and re.search(self.turned, name):
            return tensor.t()
        if self.unread is not None and re.search(self.unread[0], name):
            return tensor[self.unread[1] :]
        return tensor
