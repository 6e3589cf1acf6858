"""Which settings of the position schemes go together, and with what else of a stack."""

from __future__ import annotations

from dataclasses import fields

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.order import RelativeConfig, RotaryConfig

SHOWS_WEIGHTS = ("auto", "reference", "matmul")
"""Attention backends that hold the weights they use, so that something can be added to the values pair by pair."""
OWNERS = {"n_buckets": "t5", "max_distance": "t5", "clip_distance": "shaw"}
"""Which scheme reads a setting of `RelativeConfig`."""


def check_order(
    positions: str, *, d_head: int, causal: bool, attention: str, rotary: RotaryConfig, relative: RelativeConfig
) -> None:
    """Errors: `ConfigError` for a setting that its scheme cannot have, or that no chosen scheme reads."""
    _check_owned("rotary", rotary, {each.name: "rotary" for each in fields(rotary)}, positions)
    _check_owned("relative", relative, OWNERS, positions)
    if positions == "rotary":
        rotary.width(d_head)
    if positions == "t5":
        relative.sides(causal)
    if positions == "shaw" and attention not in SHOWS_WEIGHTS:
        names = ", ".join(repr(name) for name in SHOWS_WEIGHTS)
        raise ConfigError(
            f"positions='shaw' adds to the values pair by pair, which takes a backend that holds its weights: {names}; "
            f"got attention={attention!r}. Try attention='auto'."
        )


def _check_owned(name: str, settings: object, owners: dict[str, str], positions: str) -> None:
    usual = type(settings)()
    for key, owner in owners.items():
        value = getattr(settings, key)
        if owner != positions and value != getattr(usual, key):
            raise ConfigError(
                f"{name}.{key} belongs to positions={owner!r}; got {key}={value!r} and positions={positions!r}. "
                f"Leave it out, or try positions={owner!r}."
            )
