"""Checks that the settings of position schemes fit each other and the rest of a stack."""

from __future__ import annotations

from dataclasses import fields

from glassformer.base.errors import ConfigError
from glassformer.base.order import RelativeConfig, RotaryConfig

SHOWS_WEIGHTS = ("auto", "reference", "matmul")
"""Attention backends that hold their weights, which a bias on the values (per pair of query and key) needs."""
OWNERS = {"n_buckets": "t5", "max_distance": "t5", "clip_distance": "shaw"}
"""The scheme that uses each setting of `RelativeConfig`."""


def check_order(
    positions: str, *, d_head: int, causal: bool, attention: str, rotary: RotaryConfig, relative: RelativeConfig
) -> None:
    """Raise `ConfigError` for a setting that the chosen scheme cannot support, or does not use."""
    _check_owned("rotary", rotary, {each.name: "rotary" for each in fields(rotary)}, positions)
    _check_owned("relative", relative, OWNERS, positions)
    if positions == "rotary":
        rotary.width(d_head)
    if positions == "t5":
        relative.sides(causal)
    if positions == "shaw" and attention not in SHOWS_WEIGHTS:
        names = ", ".join(repr(name) for name in SHOWS_WEIGHTS)
        raise ConfigError(
            "positions='shaw' adds to the value of each query-key pair, so it needs a backend that stores attention "
            f"weights: {names}; got attention={attention!r}. Try attention='auto'."
        )


def _check_owned(name: str, settings: object, owners: dict[str, str], positions: str) -> None:
    usual = type(settings)()
    for key, owner in owners.items():
        value = getattr(settings, key)
        if owner != positions and value != getattr(usual, key):
            raise ConfigError(
                f"{name}.{key} belongs to positions={owner!r}; got {key}={value!r} and positions={positions!r}. Remove "
                f"{name}.{key}, or try positions={owner!r}."
            )
