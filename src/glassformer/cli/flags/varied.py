"""Reads what differs between the runs of a study: the values of --vary and of --test, the settings of --change."""

from __future__ import annotations

import re

from glassformer.base.errors import ConfigError
from glassformer.cli.settings import converted, is_switch, kind_of
from glassformer.cli.verbs import SECTIONS


def read_values(flag: str, text: str, sections: tuple[str, ...]) -> tuple[str, list[object]]:
    """Split SETTING=V1,V2 into the setting and its typed values. Errors: `ConfigError` with the nearest setting."""
    name, equals, behind = text.partition("=")
    section, dot, key = name.removeprefix("--").replace("-", "_").partition(".")
    texts = behind.split(",")
    if equals and dot and not all(texts):
        raise ConfigError(
            f"--{flag} {name} needs a value after = and between commas; got {text!r}. Add the missing value."
        )
    if not (equals and dot):
        raise ConfigError(f"--{flag} takes SECTION.SETTING=VALUE, as in --{flag} data.max_length=32; got {text!r}.")
    try:
        place, kind, on = kind_of(section, key, sections)
        if is_switch(kind) and not on:
            raise ConfigError(f"A switch takes true or false. Write {place}=false.")
        return place, [converted(place, kind, each) for each in texts]
    except ConfigError as error:
        raise ConfigError(f"--{flag} {text}: {error}") from None


def read_change(text: str) -> dict[str, object]:
    """Split SETTING=VALUE,SETTING=VALUE into typed settings. A comma that no setting follows is part of the value."""
    found: dict[str, object] = {}
    for part in re.split(r",(?=[\w-]+\.[\w-]+=)", text):
        name, equals, value = part.partition("=")
        section, dot, key = name.removeprefix("--").replace("-", "_").partition(".")
        if not (equals and dot and value):
            raise ConfigError(
                f"--change takes SECTION.SETTING=VALUE, and others after commas, as in --change model.norm=rms; got "
                f"{text!r}."
            )
        try:
            place, kind, on = kind_of(section, key, SECTIONS)
            if not on:
                raise ConfigError(f"A switch takes true or false. Write {place}=false.")
            if place in found:
                raise ConfigError(f"{place} is given twice. Give it once.")
            found[place] = converted(place, kind, value)
        except ConfigError as error:
            raise ConfigError(f"--change {text}: {error}") from None
    return found
