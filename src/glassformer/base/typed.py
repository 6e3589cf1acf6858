"""Type checks of settings: a frozen config refuses values that do not match its annotations when it is made.

Annotations are read once per class. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from glassformer.base.errors import ConfigError

WORDS: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    NoneType: "None",
}
TYPED: Mapping[type, str] = {**WORDS, bool: "true or false", NoneType: "none"}
"""The same, as spelled in a recipe or on the command line."""


@cache
def annotations_of(kind: type) -> dict[str, Any]:
    """The fields of a config and their annotations, in order."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def types_in(annotation: Any) -> tuple[type, ...]:
    """The classes that an annotation allows: `int | None` is (int, NoneType)."""
    return get_args(annotation) or (annotation,)


def check_types(config: object, section: str = "") -> None:
    """Refuse a field whose value is not of its type; the first check when a frozen config is made.

    A whole number is accepted for a float. True is not accepted as a number, nor 64.0 as a whole number. `section` is
    the prefix of the name in a recipe. Errors: `ConfigError` naming field, types and value.
    """
    for name, annotation in annotations_of(type(config)).items():
        value, allowed = getattr(config, name), types_in(annotation)
        if not is_of(value, allowed):
            place = placed(section, name)
            wanted = " or ".join(in_words(each) for each in allowed)
            message = f"{place} must be {wanted}; got {came(value)}. {remedy(place, value, allowed)}"
            raise ConfigError(message, setting=name)


def expect(value: object, kind: type, what: str, then: str) -> None:
    """Refuse an argument of another class. The error, a `ConfigError`, says `what` it is and what to do (`then`)."""
    if not isinstance(value, kind):
        raise ConfigError(f"{what} must be {in_words(kind)}; got {came(value)}. {then}")


def is_of(value: object, allowed: tuple[type, ...]) -> bool:
    """Whether a value has one of these classes; a bool is no number, and an int is accepted for a float."""
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) or (isinstance(value, int) and float in allowed)


def in_words(kind: type) -> str:
    """A class in words for users."""
    return WORDS.get(kind, f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}")


def came(value: object) -> str:
    """A value and its class as one short line, for error messages."""
    text = " ".join(repr(value).split()) if not isinstance(value, int) or value.bit_length() < 99 else "a long number"
    return "None" if value is None else f"{text[:60]} ({type(value).__name__})"


def remedy(name: str, value: object, allowed: tuple[type, ...]) -> str:
    """What to write instead: the same number if the value spells one, else an example of the right class."""
    if isinstance(value, str | float) and {int, float} & {*allowed}:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number.is_integer() and (int in allowed):
            return f"Try {name}={int(number)}."
        if math.isfinite(number) and float in allowed:
            return f"Try {name}={number}."
    made = next((each for each in allowed if each not in WORDS), None)
    if made is not None:
        return f"Give {name}={made.__name__}(...)."
    example = {int: "8", float: "0.1", str: '"..."', bool: "True"}
    return f"Try {name}={next(example[each] for each in allowed if each in example)}."


def placed(section: str, name: str) -> str:
    """A setting's full name, "section.name"; just the name if the config belongs to no section."""
    return f"{section}.{name}" if section else name
