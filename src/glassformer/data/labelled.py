r"""Read texts with a label each from a file: TSV or JSONL, plain or gzip. Nothing is silently dropped, cut or repaired.

TSV (any name)                a good film\t1         columns by number, or by name if the first line names them
JSONL (.jsonl, .ndjson; .gz)  {"text": "a good film", "label": 1}
"""

from __future__ import annotations

import json
import unicodedata
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.keys import refuse_repeated_keys
from glassformer.base.registry import suggestion
from glassformer.data.header import UNSAID, refuse_unsaid_header
from glassformer.data.lines import in_json, read_lines
from glassformer.data.pairs import Loaded, Origin, Pair
from glassformer.data.tokens.vocabulary import utf8


class Columns(NamedTuple):
    """The columns of text and label: names, or numbers from 1; None: first and second (JSONL: text and label)."""

    text: str | None = None
    label: str | None = None
    header: bool | None = None
    """Whether the first line names the columns; implied if a column is given by name. None: nobody said."""


class Row(NamedTuple):
    """One line of a file, with its number."""

    number: int
    text: str
    label: str


BREAKS = ("Cc", "Zl", "Zp")
"""Unicode's categories of control characters and line ends."""


def read_labelled(
    path: str | Path, columns: Columns | None = None, skip_empty: bool = False, known: Collection[str] | None = None
) -> Loaded:
    """Read the texts and labels of a file as pairs. `known`: the labels that are allowed; None: any.

    Errors: `DataError` naming file and line, for a missing column, a line of another shape, an empty text or label
    (skipped and counted with `skip_empty`), a label outside the set, and text that is not UTF-8 or not JSON.
    """
    columns = columns or Columns()
    is_json = in_json(path)
    rows = from_json(path, columns) if is_json else from_tsv(path, columns)
    unsaid = columns.header is None and not (is_json or by_name(columns.text) or by_name(columns.label))
    pairs: list[Pair] = []
    lines = array("q")
    skipped = 0
    for row in rows:
        empty = [name for name, value in (("text", row.text), ("label", row.label)) if not value.strip()]
        if empty and not skip_empty:
            raise DataError(
                f"{path}:{row.number}: the {empty[0]} is empty, but a line needs text and label. Correct the line, or "
                "set data.skip_empty = true to skip and count such lines."
            )
        if empty:
            skipped += 1
            continue
        check_label(path, row, known, unsaid)
        pairs.append(Pair(row.text, row.label))
        lines.append(row.number)
    if not pairs:
        raise DataError(
            f"{path}: there is no line with a text and a label, so nothing is left to read. Give another file."
        )
    if unsaid and known is None and lines[0] == 1:
        refuse_unsaid_header(path, pairs)
    return Loaded(pairs, skipped, Origin((path, path), lines))


def check_label(path: str | Path, row: Row, known: Collection[str] | None, unsaid: bool = False) -> None:
    """Refuse a label with white space around it, which looks like another one, and a label outside the set.

    Also refuse a label with a line end or a TAB: labels are written one per line, and with their probabilities in
    columns. `unsaid`: nobody said whether the first line names the columns.
    """
    if row.label != row.label.strip():
        raise DataError(
            f"{path}:{row.number}: the label {row.label[:40]!r} has white space around it, which would make it a "
            "different label. Remove the white space."
        )
    broken = next((each for each in row.label if unicodedata.category(each) in BREAKS), None)
    if broken is not None:
        raise DataError(
            f"{path}:{row.number}: a label is one line of text, but {row.label[:40]!r} contains {broken!r}, a line "
            "end, a TAB or another control character. Remove it."
        )
    if known is not None and row.label not in known:
        raise DataError(
            f"{path}:{row.number}: the label {row.label[:40]!r} does not occur in the training text, so no model could "
            f"learn it. {suggestion(row.label[:40], list(known)[:20])} Correct the line, or remove it."
            f"{f' {UNSAID}' if unsaid and row.number == 1 else ''}"
        )


def refuse_one_class(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text with only one label: there is nothing to learn."""
    first = pairs[0].target
    if all(pair.target == first for pair in pairs):
        raise DataError(
            f"{path}: a classifier needs at least two labels, but all {len(pairs)} lines have {first[:40]!r}. "
            "Add texts with another label, or set data.label_column to the right column."
        )


def from_tsv(path: str | Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a TSV file. Errors: `DataError` for a missing column or a line with another number of them."""
    lines = read_lines(path)
    named = bool(columns.header) or by_name(columns.text) or by_name(columns.label)
    asked = named or columns.text is not None or columns.label is not None
    first = lines[0].split("\t")
    width = len(first) if asked else 2
    text = place_of(columns.text, "text", 1, path, first, named=named)
    label = place_of(columns.label, "label", 2, path, first, named=named)
    if text == label:
        raise ConfigError(
            f"{path}: text and label must be in two columns, but both are column {text + 1}. Set data.text_column and "
            "data.label_column to different ones."
        )
    for number, line in enumerate(lines, start=1):
        if number == 1 and named:
            continue
        cells = line.split("\t") if line.strip() else [""] * width
        if len(cells) <= max(text, label) or len(cells) != width:
            shape = f"have {width} columns, as the first line has" if asked else "be text, TAB, label"
            raise DataError(
                f"{path}:{number}: a line must {shape}, but this one has {len(cells)} "
                f"{'column' if len(cells) == 1 else 'columns'}: {line[:60]!r}. Separate columns by one TAB, or set "
                "data.text_column and data.label_column to those of text and label."
            )
        yield Row(number, cells[text], cells[label])


def by_name(column: str | None) -> bool:
    """Whether a column is given by its name; a number has at most nine digits."""
    return column is not None and not (column.isdecimal() and len(column) < 10)


def place_of(column: str | None, what: str, usual: int, path: str | Path, first: Sequence[str], *, named: bool) -> int:
    """The index of a column, from 0, in a file whose first line has the cells `first`, which may be column names.

    Errors: `DataError` naming the existing columns.
    """
    shown = ", ".join(repr(each[:40]) for each in first[:20])
    if by_name(column):
        if column in first:
            return first.index(column)
        hint = suggestion(str(column)[:40], [each[:40] for each in first[:20]])
        raise DataError(
            f"{path}:1: data.{what}_column is {column!r:.60}, but the first line has no such column. {hint}"
        )
    place = int(column or usual)
    if place < 1 or ((named or column is not None) and place > len(first)):
        there = f"{len(first)} {'column' if len(first) == 1 else 'columns'}, counted from 1"
        raise DataError(
            f"{path}:1: data.{what}_column is {place}, but the first line has {there}: {shown}. Give one of them."
        )
    return place - 1


def from_json(path: str | Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a JSONL file. Errors: `DataError` for a line that is not a JSON object or lacks a field."""
    if columns.header:
        raise ConfigError(
            f"{path}: a .jsonl file names its fields in each line and has no header line; got data.header=True. "
            "Remove data.header."
        )
    text, label = columns.text or "text", columns.label or "label"
    spelled: dict[str, tuple[bool, int]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        record = object_in(line, f"{path}:{number}")
        row = Row(number, *(field_of(record, name, path, number) for name in (text, label)))
        quoted, before = spelled.setdefault(row.label, (isinstance(record[label], str), number))
        if quoted != isinstance(record[label], str):
            raise DataError(
                f"{path}:{number}: a label must have the same type in all lines, but {row.label[:40]!r} is "
                f"{'a number here and text' if quoted else 'text here and a number'} in line {before}. If they are the "
                "same label, write both the same way; if not, give them different names."
            )
        yield row


def object_in(line: str, place: str) -> dict[str, object]:
    """The JSON object in a line. Errors: `DataError` for anything else, and for a field that is there twice."""
    try:
        value: object = json.loads(line, object_pairs_hook=refuse_repeated_keys)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(
            f"{place}: a line must be one JSON object, but this one is not valid JSON ({reason[:80]}): "
            f"{line[:60]!r}. Write each object on a line of its own, as json.dumps does, each key once, and no empty "
            "lines."
        ) from None
    if not isinstance(value, dict):
        raise DataError(
            f'{place}: a line must be one JSON object, but this one is {line[:60]!r}. Write it as {{"name": value}}.'
        )
    return cast("dict[str, object]", value)


def field_of(record: dict[str, object], name: str, path: str | Path, number: int) -> str:
    """A field as text; a whole number is converted, because labels often are numbers."""
    if name not in record:
        raise DataError(
            f"{path}:{number}: the object has no field {name!r}. {suggestion(name, list(record)[:20])[:200]} "
            "Set data.text_column and data.label_column to the fields of text and label."
        )
    value = record[name]
    if isinstance(value, str):
        try:
            utf8(value)
        except DataError as error:  # JSON can spell half a character: "\ud83d"
            raise DataError(f"{path}:{number}: the field {name!r}: {error}") from None
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"{path}:{number}: the field {name!r} must be text or a whole number; got {json.dumps(value)[:60]}. "
        "Write it in quotes."
    )
