"""The flags by which a text is wished for in words: --ban, --begin, --bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.cli.arguments import Arguments

if TYPE_CHECKING:
    from glassformer.decode.words import Wishes


def wished(arguments: Arguments) -> Wishes:
    """What was wished. Errors: `ConfigError`."""
    from glassformer.decode.words import wishes_of  # here, as importing torch takes a second

    lists = arguments.lists
    return wishes_of(lists.get("ban", []), arguments.options.get("begin", ""), lists.get("bias", []))
