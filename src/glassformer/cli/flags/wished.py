"""The flags that constrain a text: --ban, --force, --begin, --bias, --regex, --json-schema."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import Arguments
from glassformer.cli.flags.example import bias_for
from glassformer.data.lines import read_lines
from glassformer.decode.choose.installed import llguidance

if TYPE_CHECKING:
    from glassformer.decode.choose.words import Wishes


def wished(arguments: Arguments, run: Path) -> Wishes:
    """Return the constraints that the flags ask for. `run` is the one that writes, whose vocabulary examples are from.

    Errors: `ConfigError`; `DataError` for an unreadable schema.
    """
    lists, given = arguments.lists, arguments.options
    if given.get("regex") == "":
        raise ConfigError("--regex takes a regular expression; got ''. Give one, or remove --regex.")
    biases = dict(bias_of(each, run) for each in lists.get("bias", []))
    if {"regex", "json-schema"} & given.keys():
        llguidance()
    schema = "\n".join(read_lines(given["json-schema"])) if "json-schema" in given else ""
    from glassformer.decode.choose.words import Wishes  # after the checks, as importing torch takes a second

    return Wishes(
        lists.get("ban", []), given.get("begin", ""), biases, given.get("regex", ""), schema, lists.get("force", [])
    )


def bias_of(given: str, run: Path) -> tuple[str, float]:
    """Parse "TEXT=X", split at the last =, into text and bias. Errors: `ConfigError` for anything else."""
    text, equals, value = given.rpartition("=")
    try:
        bias = float(value)
    except ValueError:
        bias = math.nan
    if not text or not equals or math.isnan(bias) or bias == math.inf:
        raise ConfigError(
            f"--bias takes TEXT=X, a token and a number (-inf: never); got {given[:40]!r}. Try --bias "
            f"{bias_for(run, text if equals else given)}."
        )
    return text, bias
