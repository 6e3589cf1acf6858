"""The flags that constrain a text: --ban, --force, --begin, --bias, --regex, --json-schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments
from glassformer.data.lines import read_lines
from glassformer.foundation.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.decode.choose.words import Wishes


def wished(arguments: Arguments) -> Wishes:
    """Return the constraints that the flags ask for. Errors: `ConfigError`; `DataError` for an unreadable schema."""
    from glassformer.decode.choose.words import wishes_of  # here, as importing torch takes a second

    lists, given = arguments.lists, arguments.options
    if given.get("regex") == "":
        raise ConfigError("--regex takes a regular expression; got ''. Give one, or remove --regex.")
    schema = "\n".join(read_lines(given["json-schema"])) if "json-schema" in given else ""
    return wishes_of(
        lists.get("ban", []),
        given.get("begin", ""),
        lists.get("bias", []),
        given.get("regex", ""),
        schema,
        lists.get("force", []),
    )
