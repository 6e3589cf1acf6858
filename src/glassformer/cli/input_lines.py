"""The lines that `translate`, `classify` and `generate --file` read: plain text, or a field of JSON objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from glassformer.base.errors import ConfigError, DataError
from glassformer.cli.arguments import Arguments
from glassformer.data.lines import HasLines, bounded_lines, decoded
from glassformer.data.records import FIRST_KEY, object_in, text_in
from glassformer.train.recipe import Recipe
from glassformer.train.tasks import task_of

STDIN = "Standard input, line "
OPENINGS = ("[", "{", "[{")
"""First lines of JSON that is spread over many."""


def lines_of(file: HasLines) -> Iterator[str]:
    """Yield the lines of a UTF-8 stream as text. LF and CRLF end a line; a leading byte order mark is removed."""
    for number, line in enumerate(bounded_lines(file, STDIN), start=1):
        yield decoded(line, f"{STDIN}{number}")


def texts_of(lines: Iterable[str], where: str, arguments: Arguments, recipe: Recipe) -> Iterator[str]:
    """Yield each line, or with `--field` that field of the JSON object in it; a blank line stays blank.

    `where` and a line's number tell its place. Errors: `ConfigError` for --field with --plain; `DataError` for a line
    that is no object or lacks the field, and without either flag if the first text seems to be JSON, which a model is
    seldom trained on: unless its recipe says data.json = false, or its task reads objects.
    """
    field, plain = arguments.options.get("field"), "plain" in arguments.options
    if plain and field is not None:
        raise ConfigError("--field reads JSON objects, --plain reads each line as it is. Give only one of them.")
    looked = plain or recipe.data.json is False or task_of(recipe.data).reads_objects
    for number, line in enumerate(lines, start=1):
        place = f"{where}{number}"
        if field is not None:
            remedy = "Give one of them to --field."
            yield text_in(object_in(line, place), field, place, remedy) if line.strip() else ""
            continue
        if not looked and line.strip():
            looked = True
            refuse_json(line, place)
        yield line


def refuse_json(line: str, place: str) -> None:
    """Refuse a line that seems to be JSON. Errors: `DataError` with the fields that it has."""
    if line.strip() not in OPENINGS and not FIRST_KEY.match(line):
        return
    try:
        names = f", here {', '.join([*object_in(line, place)][:8])}"
    except DataError:  # an array, an object of several lines, or a broken one
        names = "; an object a line, as jq -c writes them"
    raise DataError(
        f"{place}: this seems to be JSON, but would be read as plain text, with its braces and keys. Give --field NAME "
        f"to read a field of each line{names}; --plain if it is meant as plain text."
    )
