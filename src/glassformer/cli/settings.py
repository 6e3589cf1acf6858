"""The settings of a recipe as flags: their names, values and meanings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.base.settings import meaning_of, parse
from glassformer.base.typed import TYPED, annotations_of, types_in
from glassformer.cli.near import asked, meant_setting, nearest
from glassformer.cli.verbs import Verb
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


# Errors in the words of the command line: settings become the flags that were typed, or could be.

VALUE = r" ?= ?(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;:.()'\"]+(?:\.\d[^\s,;:.()'\"]*)?)"
"""A setting's value in a message: quoted, or a word or number, without the stop behind it."""
OF_SETTINGS = r"--(?:allow-change|change|vary|test) "
"""The flags that take the name of a setting. An error that begins with one is about that name."""
KEPT = rf"(?<!\w)'[^']*'|{OF_SETTINGS}\S+"
"""What is left as it is: quoted text of the user, and the names of settings that flags take."""
OF_CONSTRAINTS = {"banned": "ban", "begin": "begin", "biases": "bias", "regex": "regex", "schema": "json-schema"}
"""The flags of the fields of `Constraints`."""
CAME = r"(?<=\bgot )(?P<flag>--[\w.-]+ )?(?P<number>-?(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan))(?!\w)"
"""A number that came, as Python writes it: the `-1.0` of "got -1.0" and of "got --top-p -1.0"."""


def as_typed(message: str, verb: Verb, words: Sequence[str], setting: str | None = None) -> str:
    """Return an error's message with flags in place of the settings that the verb takes, and of their values.

    `words` were typed after the verb. A setting typed by its name, as in `--vary model.n_layers=1,2`, keeps it. A bare
    name (n_heads) is replaced if it is followed by a value or has several words, and belongs to one setting only. One
    in backquotes is kept, as where an error is about the recipe of a run. A number that came is written as it was
    typed: -1, where Python writes -1.0.
    `setting` is the one that the error is about, if it is known: its name may be that of a typed flag.
    """
    names = names_of(verb, words)
    if setting is not None and (flag := f"--{setting.replace('_', '-')}") in typed_in(words):
        names.setdefault(setting, flag)
    own = {word.partition("=")[2] if word.startswith("--") else word for word in words}
    names = {name: flag for name, flag in names.items() if name not in own}  # a run or a file may have such a name
    if not names or re.match(OF_SETTINGS, message):
        return with_numbers(message, words)
    longest = sorted(names, key=len, reverse=True)
    pattern = rf"{KEPT}|(?<![\w./`-])(?P<name>{'|'.join(map(re.escape, longest))})(?![\w-]|\.\w)(?:{VALUE})?"

    def replaced(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        bare = name is not None and name != setting and "." not in name and "_" not in name
        if name is None or (bare and value is None):
            return found[0]
        return with_value(names[name], value)

    return with_numbers(re.sub(pattern, replaced, message), words)


def with_numbers(message: str, words: Sequence[str]) -> str:
    """Return a message with the numbers that came as they were typed among `words`."""
    typed: dict[str, str] = {}
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        with suppress(ValueError):
            typed.setdefault(str(float(value)), value)
    return re.sub(CAME, lambda came: (came["flag"] or "") + typed.get(came["number"], came["number"]), message)


def names_of(verb: Verb, words: Sequence[str]) -> dict[str, str]:
    """Return each way in which a message may name a setting that the verb takes, with the flag for it."""
    typed = typed_in(words)
    short = {option.name for option in verb.options}
    names: dict[str, str] = {}
    bare: dict[str, list[str]] = {}
    for place, long in flags_of(verb.sections, verb.taken).items():
        key = place.partition(".")[2]
        if re.search(rf"(?<!--){re.escape(place)}\b", " ".join(words)):
            continue
        name = key.replace("_", "-")
        flag = f"--{name}" if place.startswith("decode.") and name in short and long not in typed else long
        names[place] = flag
        if long not in typed:
            names[long] = flag
        bare.setdefault(key, []).append(flag)
    for key, flags in bare.items():
        own = [flag for flag in flags if flag in typed]
        if len(flags) == 1 or len(own) == 1:
            names[key] = (own or flags)[0]
    for option in verb.options:  # those that are no settings of a recipe, such as those of a server
        names.setdefault(option.name.replace("-", "_"), f"--{option.name}")
    names |= {f"Constraints.{field}": f"--{flag}" for field, flag in OF_CONSTRAINTS.items() if flag in short}
    return names


def typed_in(words: Sequence[str]) -> set[str]:
    """Return the flags among the words, with `-` in their names."""
    return {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}


def with_value(flag: str, value: str | None) -> str:
    """Return a flag with its value as it is typed: `--top-k none`, `--data.no-header`."""
    if value is None:
        return flag
    bare = value.strip("'\"") if value[0] in "'\"" else value
    section, _, key = flag.removeprefix("--").replace("-", "_").partition(".")
    if bare.lower() in ("true", "false") and key and is_switch(annotations_of(annotations_of(Recipe)[section])[key]):
        return flag if bare.lower() == "true" else f"--{section}.no-{key.replace('_', '-')}"
    shown = "none" if bare == "None" else bare
    return f"{flag} {value if ' ' in shown or not shown else shown}"
