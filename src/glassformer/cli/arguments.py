"""Reads the words after a verb: its target, its flags, and settings given as `--section.key value`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from glassformer.base.errors import ConfigError
from glassformer.cli.near import asked, meant_flag
from glassformer.cli.settings import converted, flags_of, is_switch, kind_of
from glassformer.cli.verbs import COMMON, Verb


@dataclass
class Arguments:
    """What the user typed after a verb."""

    target: str | None = None
    second: str | None = None
    more: list[str] = field(default_factory=list)
    """Further targets, for a verb that takes several."""
    options: dict[str, str] = field(default_factory=dict)
    """Flags by name. A switch that was given has the value ""."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """All values, in order, of the flags that may be repeated."""
    changes: dict[str, object] = field(default_factory=dict)
    """Settings by name, such as `model.n_layers`, with values of the right types."""


def read_arguments(name: str, verb: Verb, words: Sequence[str]) -> Arguments:
    """Parse the words. Errors: `ConfigError` for an unknown flag (with the nearest), or a missing or superfluous value.

    `--key value` and `--key=value` mean the same, and so do `-` and `_` inside a name. A setting that is a switch needs
    no value, and `--section.no-key` turns it off.
    """
    found = Arguments()
    options = {option.name: option for option in (*verb.options, *COMMON)}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        # no verb has a flag of one letter; `-h` was looked for before
        if len(word) == 2 and word[0] == "-" and word[1].isalpha():
            raise ConfigError(unknown_flag(name, verb, word))
        if not word.startswith("--"):
            if found.target is not None and verb.second is not None and found.second is None:
                found.second = word
                continue
            if found.target is not None and verb.many:
                found.more.append(word)
                continue
            if verb.target is None or found.target is not None:
                readable = "data" in verb.sections and Path(word).exists()
                instead = f"If it is what to read: --data.text {word}. " if readable else ""
                raise ConfigError(
                    f"`glassformer {name}` takes no further argument; got {word!r}. {instead}{usage(name, verb)}"
                )
            found.target = word
            continue
        flag, equals, behind = word.removeprefix("--").partition("=")
        given = behind if equals else None
        if "." in flag and verb.sections:
            key, change = read_setting(flag, given, rest, verb)
            found.changes[key] = change
            continue
        option = options.get(flag.replace("_", "-"))
        if option is None:
            raise ConfigError(unknown_flag(name, verb, f"--{flag}"))
        if option.value is None and given is not None:
            raise ConfigError(f"--{option.name} takes no value; got {given!r}. Write --{option.name} alone.")
        value = "" if option.value is None else taken(option.name, given, rest)
        if option.repeats:
            found.lists.setdefault(option.name, []).append(value)
            continue
        if option.value is not None and option.name in found.options:
            before = found.options[option.name]
            raise ConfigError(f"--{option.name} takes one value; got {before!r} and {value!r}. Give one of them.")
        found.options[option.name] = value
    return found


def unknown_flag(name: str, verb: Verb, flag: str) -> str:
    """Return the error for a flag that a verb does not have: which may have been meant, and where all are listed."""
    meant = meant_flag(flag.lstrip("-"), verb, flags_of(verb.sections, verb.taken))
    return " ".join(
        filter(None, [f"`glassformer {name}` has no flag {flag}.", meant, f"All flags: glassformer {name} --help."])
    )


def read_setting(flag: str, given: str | None, rest: list[str], verb: Verb) -> tuple[str, object]:
    """Return the setting that `--section.key` names and its value, which is `given` or else the next word in `rest`."""
    section, _, key = flag.replace("-", "_").partition(".")
    if section not in verb.sections and any(option.name.replace("-", "_") == key for option in verb.options):
        raise ConfigError(f"--{flag} is not a setting. {asked('--' + key.replace('_', '-'))}")
    place, kind, on = kind_of(section, key, verb.sections)
    if is_switch(kind):
        if given is None and rest and rest[0].lower() in ("true", "false", *(["none"] if kind is not bool else [])):
            given = rest.pop(0)
        value = converted(place, kind, "true" if given is None else given)
        return place, value if on else not value
    return place, converted(place, kind, taken(flag, given, rest))


def asks_for_help(verb: Verb, words: Sequence[str]) -> bool:
    """Whether `--help` or `-h` is among the words. A `-h` after a flag that takes a value is that flag's value."""
    alone = (not takes_value(verb, before) for before, word in pairwise(["", *words]) if word == "-h")
    return "--help" in words or any(alone)


def takes_value(verb: Verb, word: str) -> bool:
    """Whether a word is a flag of the verb that takes the next word as its value."""
    flag = word.removeprefix("--").replace("_", "-")
    section, dot, key = flag.replace("-", "_").partition(".")
    if not word.startswith("--") or "=" in word:
        return False
    if dot and verb.sections:
        with suppress(ConfigError):
            return not is_switch(kind_of(section, key, verb.sections)[1])
    return any(option.name == flag and option.value is not None for option in (*verb.options, *COMMON))


def taken(flag: str, given: str | None, rest: list[str]) -> str:
    """Return the value of a flag: the text after its `=`, or the next word."""
    if given is not None:
        return given
    if not rest or rest[0].startswith("--"):
        raise ConfigError(f"--{flag} needs a value. Write --{flag} VALUE, or --{flag}=VALUE if VALUE begins with --.")
    return rest.pop(0)


def whole_number(name: str, given: str, most: int, usual: int = 3) -> int:
    """Parse the value of a flag that counts. Errors: `ConfigError` for anything but a whole number from 1 to `most`."""
    if not given.isdecimal() or len(given) > 9 or not 1 <= int(given) <= most:
        raise ConfigError(f"--{name} takes a whole number from 1 to {most}; got {given[:40]!r}. Try --{name} {usual}.")
    return int(given)


def usage(name: str, verb: Verb) -> str:
    """Return the usage line of a verb."""
    target = f" {verb.target}" if verb.target else ""
    if verb.optional:
        return f"Usage: glassformer {name} [{verb.target} ...] [flags]"
    second = f" {verb.second}" if verb.needs_second else f" [{verb.second}]"
    target += second if verb.second else f" [{verb.target} ...]" if verb.many else ""
    settings = " [--section.key value]" if verb.sections else ""
    return f"Usage: glassformer {name}{target} [flags]{settings}"
