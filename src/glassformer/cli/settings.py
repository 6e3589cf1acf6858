"""The settings of a recipe as flags: their names, values and meanings."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Collection, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from glassformer.base.errors import ConfigError
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
    """Return `text` as a value of the setting's type. Errors: `ConfigError` saying what was expected and what came."""
    import tyro  # here, because importing it takes longer than all of --help

    allowed = types_in(kind)
    a_word = (NoneType in allowed and text.lower() == "none") or is_switch(kind)
    typed = text.capitalize() if a_word else text  # None, True, False, as Python writes them
    # Only the value goes to tyro, whose own errors are drawn in boxes: ours replace them.
    leaf = make_dataclass("Leaf", [("value", kind)])
    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            return tyro.cli(leaf, args=[f"--value={typed}"], config=(tyro.conf.FlagConversionOff,)).value
    except SystemExit:
        wanted = " or ".join(TYPED[each] for each in allowed)
        flag = flag_of(*place.split(".", 1))
        raise ConfigError(f"{flag} takes {wanted}; got {text!r}.") from None


def setting_lines(section: str, recipe: Recipe, taken: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (flag and value type, meaning and current value) for each setting of a section, or for those `taken`."""
    values = getattr(recipe, section)
    meanings = meanings_of(type(values))
    lines: list[tuple[str, str]] = []
    for key, kind in annotations_of(type(values)).items():
        if taken and key not in taken:
            continue
        value = getattr(values, key)
        takes = "" if is_switch(kind) else " " + SHOWN[next(each for each in (types_in(kind)) if each in SHOWN)]
        shown = "" if value is None else f" [{str(value).lower() if is_switch(kind) else value}]"
        lines.append((flag_of(section, key) + takes, meanings.get(key, "") + shown))
    return lines


def meanings_of(kind: type) -> dict[str, str]:
    """Return the sentence under each field of a config. That of a subclass takes precedence over that of its base."""
    bases = [each for each in reversed(kind.__mro__) if is_dataclass(each)]
    return {key: text for each in bases for key, text in explanations(each.__module__)[each.__name__].items()}


@cache
def explanations(module: str) -> dict[str, dict[str, str]]:
    """Read the sentence under each field of each class from a module's source, by class and field."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text("utf-8"))
    found: dict[str, dict[str, str]] = {}
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            texts = found.setdefault(each.name, {})
            for field, text in zip(each.body, each.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and isinstance(text, ast.Expr)
                ):
                    texts[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found
