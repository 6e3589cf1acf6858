"""The settings of a recipe as flags: their names, values and meanings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.base.settings import meaning_of, parse
from glassformer.base.typed import TYPED, annotations_of, types_in
from glassformer.cli.flags.near import asked, meant_setting, nearest
from glassformer.train.recipe import Recipe

SHOWN = {int: "INT", float: "NUMBER", str: "TEXT"}


def flag_of(section: str, key: str) -> str:
    """Return a setting as it is typed."""
    return f"--{section}.{key.replace('_', '-')}"


def flags_of(sections: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the settings of some sections, or those `taken`, as "section.key", each with its flag."""
    keys = [(section, key) for section in sections for key in annotations_of(annotations_of(Recipe)[section])]
    return {f"{section}.{key}": flag_of(section, key) for section, key in keys if not taken or key in taken}


def kind_of(section: str, key: str, sections: tuple[str, ...]) -> tuple[str, Any, bool]:
    """Return the setting's name, its type, and False if a switch is turned off by `no_key`, else True.

    Errors: `ConfigError` for an unknown section or key, with the nearest match.
    """
    if section not in sections:
        near = nearest(section, {each: each for each in sections})
        hint = f" {asked(*near)}" if near else ""
        known = ", ".join(map(repr, sorted(sections)))
        raise ConfigError(f"{flag_of(section, key)}: there is no section {section!r} here. Known: {known}.{hint}")
    known = annotations_of(annotations_of(Recipe)[section])
    if key in known:
        return f"{section}.{key}", known[key], True
    bare = key.removeprefix("no_")
    if bare in known and is_switch(known[bare]):
        return f"{section}.{bare}", bool, False
    hint = meant_setting(section, key, flags_of(sections)) or f"Known: {', '.join(map(repr, sorted(known)))}."
    raise ConfigError(f"{flag_of(section, key)} is not a setting. {hint}")


def is_switch(kind: Any) -> bool:
    """Whether a setting is a bool, or a bool or None."""
    return bool in types_in(kind)


def converted(place: str, kind: Any, text: str) -> object:
    """Return `text` as a value of a type, for a setting or flag. Errors: `ConfigError` if it is none."""
    with suppress(ValueError):
        return parse(kind, text)
    wanted = " or ".join(TYPED[each] for each in types_in(kind))
    flag = place if place.startswith("--") else flag_of(*place.split(".", 1))
    raise ConfigError(f"{flag} takes {wanted}; got {text[:200]!r}.")


def setting_lines(section: str, recipe: Recipe, taken: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (flag and value type, meaning and current value) for each setting of a section, or for those `taken`."""
    values = getattr(recipe, section)
    lines: list[tuple[str, str]] = []
    for key, kind in annotations_of(type(values)).items():
        if taken and key not in taken:
            continue
        value = getattr(values, key)
        takes = "" if is_switch(kind) else " " + SHOWN[next(each for each in (types_in(kind)) if each in SHOWN)]
        shown = "" if value is None else f" [{str(value).lower() if is_switch(kind) else value}]"
        lines.append((flag_of(section, key) + takes, meaning_of(type(values), key) + shown))
    return lines
