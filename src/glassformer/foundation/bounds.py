"""Bounds of settings: a number outside them is refused when its config is made, before anything is counted out."""

from __future__ import annotations

import math

from glassformer.foundation.errors import ConfigError


def at_least(config: object, section: str, least: int, *names: str) -> None:
    """Refuse a number below `least`, or one that is not finite; none is always allowed."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(
                f"{placed(section, name)} must be at least {least}; got {in_digits(value)}. Try {name}={least or 0}.",
                setting=name,
            )


def at_most(config: object, section: str, most: int, *names: str) -> None:
    """Refuse a number above `most`; none is always allowed."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value > most:
            raise ConfigError(
                f"{placed(section, name)} must be at most {most}; got {in_digits(value)}. Give a smaller one.",
                setting=name,
            )


def placed(section: str, name: str) -> str:
    """A setting as a user finds it; a config that belongs to no section has none."""
    return f"{section}.{name}" if section else name


def in_digits(value: int | float) -> str:
    """A number for a message; of a very long one only how long it is, as Python writes no number of 5,000 digits."""
    return f"one of {value.bit_length()} bits" if isinstance(value, int) and value.bit_length() > 99 else str(value)
