"""The flags that constrain a text (--ban, --force, --begin, --bias, --regex, --json-schema) or end it (--stop)."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, GlassformerError
from glassformer.cli.arguments import Arguments
from glassformer.data.lines import read_lines
from glassformer.data.tokens.vocabulary import SPECIALS, UNK, Tokenizer
from glassformer.decode.installed import llguidance
from glassformer.store.folders import TOKENIZER, best_or_newest

if TYPE_CHECKING:
    from glassformer.decode.constraints import Constraints


ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|([abefnrtv\\]))")


def unescaped(text: str) -> str:
    r"""Return a text with escapes as `printf` of a shell has them: \n is a line end, \x41 and \u0041 are A.

    A backslash before anything else stays; `\\` is one backslash. Errors: `ConfigError` for a number that is no
    character.
    """

    def character(found: re.Match[str]) -> str:
        *numbers, octal, letter = found.groups()
        if letter is not None:
            return ESCAPES[letter]
        code = int(octal, 8) if octal is not None else int(next(each for each in numbers if each is not None), 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ConfigError(f"An escape must be the number of a character; got {found[0]}. Try \\u0041, which is A.")
        return chr(code)

    return ESCAPE.sub(character, text)


def constraints_of(arguments: Arguments, run: Path) -> Constraints:
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
    from glassformer.decode.constraints import Constraints  # after the checks, as importing torch takes a second

    banned, forced = ([unescaped(each) for each in lists.get(name, [])] for name in ("ban", "force"))
    return Constraints(banned, unescaped(given.get("begin", "")), biases, given.get("regex", ""), schema, forced)


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
    return unescaped(text), bias


# An example of a flag's value that works for the vocabulary of a run. Imports no torch.


def bias_for(run: Path, text: str) -> str:
    """Return a value for `--bias`, quoted for a shell: of `text` if it is a token of the run, else of one like it.

    A run whose vocabulary cannot be read is not complained about here: then it is `text`, whatever its tokens are.
    """
    quoted = shlex.quote(f"{token_like(run, text) or text or 'e'}=-2.5")
    return quoted if quoted.startswith("'") else f"'{quoted}'"


def token_like(run: Path, text: str) -> str | None:
    """Return a text that is one token of the run's vocabulary: `text`, a part of it, or any; None if none is found."""
    from glassformer.data.tokenizer import tokenizer_from_json  # here, as only a mistake needs it

    try:
        found = best_or_newest(run, read=(TOKENIZER,), hashed=False).folder
        if found is None:
            return None
        tokenizer = tokenizer_from_json((found / TOKENIZER).read_text("utf-8"))
        return next((each for each in candidates(tokenizer, text) if is_token(tokenizer, each)), None)
    except (GlassformerError, OSError, UnicodeDecodeError):
        return None


def candidates(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield `text`, its tokens, and then all tokens of the vocabulary."""
    yield text
    for id in (*tokenizer.encode(text), *range(len(SPECIALS), tokenizer.vocab_size)):
        yield tokenizer.decode([id])


def is_token(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a text is one token, and can be read in a message."""
    ids = tokenizer.encode(text) if text.strip() and text.isprintable() else []
    return len(ids) == 1 and ids[0] != UNK
