"""The shape of a family's models: what all of them have, what varies, and whether a model of ours has that shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.store.families.settings import Row
from glassformer.store.families.values import Values

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
