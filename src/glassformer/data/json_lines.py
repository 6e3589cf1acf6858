"""Read JSON objects from a file, one on each line (JSON lines) or all in one array; and tell JSON from plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, NamedTuple, cast

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import refuse_repeated_keys, suggestion
from glassformer.data.lines import HEAD, LONGEST_LINE, MARK, MOST_UNSEEN, Opened, decoded_chunks, lines_of
from glassformer.data.tokens.vocabulary import utf8

NAMES = (".jsonl", ".ndjson", ".jsonlines")
"""How the names of files with JSON lines end, also with .gz after it, in any case."""
ARRAY = re.compile(rb"\s*\[\s*(\{|null\b)")
WHITE = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder(object_pairs_hook=refuse_repeated_keys)
Object = dict[str, object]


class Record(NamedTuple):
    """One object of a file."""

    number: int
    """Its line, or its place in the array, from 1."""
    place: str
    """FILE:LINE, or FILE[NUMBER] in an array."""
    fields: Object | None
    """None for a blank line, and for null in place of an object."""


# --- is it JSON, or plain text?

FIRST_KEY = re.compile(r'\s*(?:\[\s*)?(\{\s*"(?:[^"\\]|\\.)*"\s*:)')
"""How an object, or an array of objects, begins."""
LOOKED_AT = 20
"""The most lines that tell JSON from plain text."""
OBJECTS = "objects"
WAYS = {
    "arrays": "jq -c '{text: .[0], label: .[1]}'",
    "an array": "jq -c '.[] | {text: .}'",
    "texts in quotes": "jq -c '{text: .}'",
}
"""What JSON may hold in place of objects, and how objects are made of it."""


def in_json(path: str | Path) -> bool:
    """Whether a file holds JSON lines, by its name."""
    return str(path).lower().removesuffix(".gz").endswith(NAMES)


def seems_json(text: str, *, cut: bool = False) -> str:
    """What the first lines of a text seem to hold, if it is JSON: `OBJECTS` or one of `WAYS`; "" for any other text.

    Objects are told by the first one. A text may also begin with something in brackets or in quotes, so arrays are told
    by two lines that are nothing else, and texts in quotes by twenty, or by two if a character is escaped in them. All
    may have blank lines, {}, null and comments before them. `cut`: the text goes on, maybe in the middle of a line.
    """
    rest = "\n".join(dropwhile(_says_nothing, text.split("\n"))).lstrip()
    if found := FIRST_KEY.match(rest):
        try:
            _, end = json.JSONDecoder().raw_decode(rest, found.start(1))
        except (ValueError, RecursionError):
            return OBJECTS  # an object of many lines, or a broken one: its error says where
        follows = rest[end:].lstrip(" \t")[:1]
        return OBJECTS if follows in ("", "\r", "\n", ",", "]") else ""  # else a cell of a table, or prose
    if rest[:1] not in ("[", '"'):
        return ""
    lines = [line for line in rest.split("\n")[: -1 if cut else None] if not _says_nothing(line)][:LOOKED_AT]
    values = [_value(line) for line in lines]
    if len(values) > 1 and all(isinstance(each, (list, dict)) for each in values):
        return "arrays"
    quoted = all(isinstance(each, str) for each in values)
    if quoted and (len(values) == LOOKED_AT or (len(values) > 1 and any("\\" in line for line in lines))):
        return "texts in quotes"
    return "an array" if _is_one_array(rest, cut) else ""


def _says_nothing(line: str) -> bool:
    bare = line.strip()
    return bare in ("", "{}", "null") or bare.startswith(("#", "//"))


def _value(text: str) -> object:
    """The JSON value that a text is; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_one_array(text: str, cut: bool) -> bool:
    """Whether a whole text is an array of texts or of arrays; of one that is cut, whether all of it may begin one."""
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        ends = "Unterminated" in error.msg or error.pos > len(text) - 8
        return cut and ends and text[:1] == "[" and len(text) >= HEAD // 4  # less is a line that is complete
    except (ValueError, RecursionError):
        return False
    several = isinstance(found, list) and len(found) > 1 and any(isinstance(each, (str, list, dict)) for each in found)
    return several and not cut and not text[end:].strip()


def looks_like_json(stream: BufferedReader[Any], path: str | Path) -> str:
    """What an open file seems to hold, as `seems_json` says; nothing is read of it."""
    head = stream.peek(1)
    text = head.removeprefix(MARK).decode("utf-8", "replace")
    if str(path).lower().removesuffix(".gz").endswith(".json") and text.lstrip()[:1] in ("{", "["):
        return OBJECTS
    return seems_json(text, cut=len(head) >= HEAD)


def is_json(
    stream: BufferedReader[Any],
    path: str | Path,
    given: bool | None,
    *,
    fields: bool,
    remedy: str,
    header: bool | None = None,
) -> bool:
    """Whether to read an open file as JSON: as `given`, as its name says, or if it looks so and `fields` were named.

    Errors: `DataError` for a file that looks so although nobody said so; `remedy` says which settings name fields.
    `ConfigError` for JSON that is to have a header line.
    """
    found = given
    if found is None and not (found := in_json(path)) and (what := looks_like_json(stream, path)):
        if not fields:
            raise _unsaid(path, what, remedy)
        found = True
    if found and header:
        raise ConfigError(
            f"{path}: JSON names the fields in each object and has no header line; got data.header=True. Remove "
            "data.header."
        )
    return bool(found)


def _unsaid(path: str | Path, what: str, remedy: str) -> DataError:
    """The error for a file that seems to be JSON, although nobody said so."""
    if what == OBJECTS:
        kind, signs = "JSON lines or an array of objects", "braces and keys"
        way = f"{remedy}, or data.json = true to read its usual fields; "
    else:
        kind = {"arrays": "an array on each line", "an array": "one array"}.get(what, "a text in quotes on each line")
        signs, way = "brackets and quotes", f"Write objects: {WAYS[what]} OLD > NEW.jsonl. {remedy}; "
    return DataError(
        f"{path}: this seems to be JSON ({kind}), but would be read as plain text, with its {signs}. {way}data.json = "
        "false if it is meant as plain text."
    )


# --- objects, and their fields


def records_of(file: Opened, path: str | Path) -> Iterator[Record]:
    """Yield the objects of an open file. Errors: `DataError` naming the place of what is no object.

    An array of any size takes the memory of one object.
    """
    if begins_as_array(file.stream):
        for number, fields in enumerate(_array(decoded_chunks(file.stream, path), path, file.limit), start=1):
            yield Record(number, f"{path}[{number}]", fields)
        return
    for number, line in enumerate(lines_of(file, path), start=1):
        place = f"{path}:{number}"
        yield Record(number, place, None if line.strip() in ("", "null") else object_in(line, place))


def _array(chunks: Iterator[str], path: str | Path, limit: float) -> Iterator[Object | None]:
    rest, at, number, read, wanted = "", 0, 0, 0, "["
    for chunk in chain(chunks, [None]):  # None: nothing comes after
        rest, at, read = rest[at:] + (chunk or ""), 0, read + len(chunk or "")
        if read > limit:
            raise DataError(f"{path}: a pipe or a gzip file may have at most {MOST_UNSEEN:,} characters. Unpack it.")
        while True:
            at = WHITE.match(rest, at).end()  # pyright: ignore[reportOptionalMemberAccess] - it always matches
            sign = rest[at : at + 1]
            if not sign:
                break
            if sign not in wanted:
                shown = f"instead of {' or '.join(wanted.replace('n', '')) or 'nothing'} comes {rest[at : at + 40]!r}"
                raise DataError(f"{path}[{number + 1}]: an array of JSON objects is expected; {shown}. Correct it.")
            if sign not in "{n":  # an object, or null in place of one
                at, wanted = at + 1, {"[": "{n]", ",": "{n", "]": ""}[sign]
                continue
            try:
                value, at = cast("tuple[Object | None, int]", DECODER.raw_decode(rest, at))
            except (ValueError, RecursionError) as error:
                if chunk is not None and len(rest) - at <= LONGEST_LINE and not isinstance(error, RecursionError):
                    break  # the object may go on in the next chunk
                raise _no_json(error, f"{path}[{number + 1}]", rest[at : at + 60]) from None
            number, wanted = number + 1, ",]"
            yield value
    if wanted:
        raise DataError(f"{path}: the array of JSON objects has no end, after {number} objects. Write it again.")


def begins_as_array(stream: BufferedReader[Any]) -> bool:
    """Whether an open file begins with an array of objects; nothing is read of it."""
    return ARRAY.match(stream.peek(1).removeprefix(MARK)) is not None


def object_in(line: str, place: str) -> Object:
    """The JSON object in a line. Errors: `DataError` for anything else, and for a field that is there twice."""
    try:
        value: object = DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        raise _no_json(error, place, line[:60]) from None
    if not isinstance(value, dict):
        raise DataError(
            f'{place}: a line must be one JSON object, but this one is {line[:60]!r}. Write it as {{"name": value}}.'
        )
    return cast("Object", value)


def _no_json(error: Exception, place: str, shown: str) -> DataError:
    reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
    return DataError(
        f"{place}: a line must be one JSON object, but this one is not valid JSON ({reason[:80]}): {shown!r}. Write "
        "each object on a line of its own, as json.dumps does, each key once."
    )


def value_in(fields: Object, name: str, place: str, remedy: str) -> object:
    """The value of a field; of nested objects, as "translation.en"; None also if one of these is null.

    Errors: `DataError` naming the fields there are.
    """
    if name in fields:
        return fields[name]
    value: object = fields
    for key in name.split("."):
        if value is None:
            return None
        if not isinstance(value, dict) or key not in value:
            raise DataError(
                f"{place}: the object has no field {name!r}. {suggestion(name, _names(fields)[:20])[:200]} {remedy}"
            )
        value = value[key]
    return value


def _names(fields: Object) -> list[str]:
    """The names of all fields that hold no object; of nested ones two levels deep."""
    found: list[str] = []
    for name, value in fields.items():
        found += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]
    return found


def text_in(fields: Object, name: str, place: str, remedy: str) -> str:
    r"""A field as text: whole numbers and truth values as JSON writes them, null as "".

    Errors: `DataError` for another value, and for half a character, which JSON can spell as "\ud83d".
    """
    return text_of(value_in(fields, name, place, remedy), name, place)


def text_of(value: object, name: str, place: str) -> str:
    """The value of a field as text, or one of the values in its list: see `text_in`."""
    if value is None:
        return ""
    if isinstance(value, int):  # a truth value, too
        return json.dumps(value)
    if not isinstance(value, str):
        raise DataError(
            f"{place}: the field {name!r} must be text or a whole number; got {json.dumps(value)[:60]}. "
            "Write it in quotes."
        )
    return checked(value, name, place)


def checked(text: str, name: str, place: str) -> str:
    """The text of a field. Errors: `DataError` for half a character."""
    try:
        utf8(text)
    except DataError as error:
        raise DataError(f"{place}: the field {name!r}: {error}") from None
    return text
