"""Bounds of settings: a config refuses numbers outside them when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping

from glassformer.base.errors import ConfigError

NO_ADVICE: Mapping[str, str] = {}


def at_least(config: object, section: str, least: int, *names: str, advice: Mapping[str, str] = NO_ADVICE) -> None:
    """Refuse a setting below `least`, or not finite; None is always allowed. Errors: `ConfigError`.

    `advice` says by name what to try instead of `least`, as "0.8; 0 is greedy".
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(
                f"{placed(section, name)} must be at least {least}{'' if value < least else ' and finite'}; "
                f"got {in_digits(value)}. Try {placed(section, name)}={advice.get(name, least)}.",
                setting=name,
            )


def at_most(config: object, section: str, most: int, *names: str, advice: Mapping[str, str] = NO_ADVICE) -> None:
    """Refuse a setting above `most`; None is always allowed. `advice` is as in `at_least`. Errors: `ConfigError`."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value > most:
            instead = f"Try {placed(section, name)}={advice[name]}" if name in advice else "Give a smaller number"
            raise ConfigError(
                f"{placed(section, name)} must be at most {most}; got {in_digits(value)}. {instead}.", setting=name
            )


def placed(section: str, name: str) -> str:
    """A setting's full name, "section.name"; just the name if the config belongs to no section."""
    return f"{section}.{name}" if section else name


def in_digits(value: int | float) -> str:
    """A number as text for a message; for a very long one only its length, as Python prints no 5,000 digits."""
    return (
        f"a number of {value.bit_length()} bits" if isinstance(value, int) and value.bit_length() > 99 else str(value)
    )
