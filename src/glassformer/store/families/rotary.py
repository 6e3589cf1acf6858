"""Rotary positions in a config.json: `rope_theta` and `rope_scaling`, or both in `rope_parameters`; and ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassformer.base.order import SCALINGS, RotaryConfig
from glassformer.store.families.settings import Ours, Row
from glassformer.store.families.values import Values

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
