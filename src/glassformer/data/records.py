"""Read JSON objects from a file: one on each line (JSON lines), or all in one array.

A name such as `.jsonl` says what a file holds. Others are looked at: braces, keys and quotes of a file that only
seems to be plain text would be learned without a word, so the user must say how it is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from glassformer.base.errors import DataError
from glassformer.base.keys import refuse_repeated_keys
from glassformer.base.registry import suggestion
from glassformer.data.lines import LONGEST_LINE, MARK, MOST_UNSEEN, Opened, decoded_chunks, lines_of
from glassformer.data.tokens.vocabulary import utf8

NAMES = (".jsonl", ".ndjson", ".jsonlines")
"""How the names of files with JSON lines end, also with .gz after it, in any case."""
FIRST_KEY = re.compile(r'\s*(?:\[\s*)?(\{\s*"(?:[^"\\]|\\.)*"\s*:)')
"""How an object, or an array of objects, begins."""
ARRAY = re.compile(rb"\s*\[\s*\{")
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
    """None for a blank line."""


def in_json(path: str | Path) -> bool:
    """Whether a file holds JSON lines, by its name."""
    return str(path).lower().removesuffix(".gz").endswith(NAMES)


def looks_like_json(stream: BufferedReader[Any], path: str | Path) -> bool:
    """Whether an open file begins as JSON objects do; nothing is read of it."""
    head = stream.peek(1).removeprefix(MARK).decode("utf-8", "replace")
    if str(path).lower().removesuffix(".gz").endswith(".json"):
        return head.lstrip()[:1] in ("{", "[")
    found = FIRST_KEY.match(head)
    if found is None:
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(head, found.start(1))
    except (ValueError, RecursionError):
        return True  # an object of many lines, or a broken one: its error says where
    return head[end:].lstrip(" \t")[:1] in ("", "\r", "\n", ",", "]")  # else a cell of a table, or prose


def is_json(stream: BufferedReader[Any], path: str | Path, given: bool | None, *, fields: bool, remedy: str) -> bool:
    """Whether to read an open file as JSON: as `given`, as its name says, or if it looks so and `fields` were named.

    Errors: `DataError` for a file that looks so although nobody said so; `remedy` says which settings name fields.
    """
    if given is not None or in_json(path):
        return given is None or given
    if not looks_like_json(stream, path):
        return False
    if fields:
        return True
    raise DataError(
        f"{path}: this seems to be JSON (JSON lines or an array of objects), but would be read as plain text, with its "
        f"braces and keys. {remedy}, or data.json = true to read its usual fields; data.json = false if it is meant as "
        "plain text."
    )


def records_of(file: Opened, path: str | Path) -> Iterator[Record]:
    """Yield the objects of an open file. Errors: `DataError` naming the place of what is no object.

    An array of any size takes the memory of one object.
    """
    if ARRAY.match(file.stream.peek(1).removeprefix(MARK)):
        for number, fields in enumerate(_array(decoded_chunks(file.stream, path), path, file.limit), start=1):
            yield Record(number, f"{path}[{number}]", fields)
        return
    for number, line in enumerate(lines_of(file, path), start=1):
        place = f"{path}:{number}"
        yield Record(number, place, object_in(line, place) if line.strip() else None)


def _array(chunks: Iterator[str], path: str | Path, limit: float) -> Iterator[Object]:
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
                shown = f"instead of {' or '.join(wanted) or 'nothing'} comes {rest[at : at + 40]!r}"
                raise DataError(f"{path}[{number + 1}]: an array of JSON objects is expected; {shown}. Correct it.")
            if sign != "{":
                at, wanted = at + 1, {"[": "{]", ",": "{", "]": ""}[sign]
                continue
            try:
                value, at = cast("tuple[Object, int]", DECODER.raw_decode(rest, at))
            except (ValueError, RecursionError) as error:
                if chunk is not None and len(rest) - at <= LONGEST_LINE and not isinstance(error, RecursionError):
                    break  # the object may go on in the next chunk
                raise _no_json(error, f"{path}[{number + 1}]", rest[at : at + 60]) from None
            number, wanted = number + 1, ",]"
            yield value
    if wanted:
        raise DataError(f"{path}: the array of JSON objects has no end, after {number} objects. Write it again.")


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
        "each object on a line of its own, as json.dumps does, each key once; blank lines are skipped and counted with "
        "data.skip_empty = true."
    )


def value_in(fields: Object, name: str, place: str, remedy: str) -> object:
    """The value of a field; of nested objects, as "translation.en". Errors: `DataError` naming the fields there are."""
    if name in fields:
        return fields[name]
    value: object = fields
    for key in name.split("."):
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
    value = value_in(fields, name, place, remedy)
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
