r"""Texts with a label each, from a file: TSV or JSONL, plain or gzip. Nothing is dropped, cut or mended in silence.

TSV (any name)                a good film\t1         columns by number, or by name where the first line names them
JSONL (.jsonl, .jsonl.gz)     {"text": "a good film", "label": 1}
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from glassformer.data.lines import read_lines
from glassformer.data.pairs import Loaded, Origin, Pair
from glassformer.foundation.errors import ConfigError, DataError
from glassformer.foundation.registry import suggestion


class Columns(NamedTuple):
    """Where text and label stand: names, or numbers from 1; None: the first and the second (JSONL: text and label)."""

    text: str | None = None
    label: str | None = None
    header: bool = False
    """Whether the first line names the columns; it does anyway where a column is given by name."""


class Row(NamedTuple):
    """One line of a file, and which."""

    number: int
    text: str
    label: str


def read_labelled(
    path: str | Path, columns: Columns | None = None, skip_empty: bool = False, known: Collection[str] | None = None
) -> Loaded:
    """The texts and labels of a file as pairs. `known`: the labels that there are; None: any.

    Errors: `DataError` naming file and line, for a missing column, a line of another shape, an empty text or label
    (counted and left out with `skip_empty`), a label outside the set, text that is no UTF-8, or no JSON.
    """
    columns = columns or Columns()
    is_json = str(path).lower().removesuffix(".gz").endswith(".jsonl")
    rows = from_json(path, columns) if is_json else from_tsv(path, columns)
    pairs: list[Pair] = []
    lines = array("q")
    skipped = 0
    for row in rows:
        empty = [name for name, value in (("text", row.text), ("label", row.label)) if not value.strip()]
        if empty and not skip_empty:
            raise DataError(
                f"{path}:{row.number}: the {empty[0]} is empty. Mend the line, or set data.skip_empty = true to leave "
                "such lines out and count them."
            )
        if empty:
            skipped += 1
            continue
        check_label(path, row, known)
        pairs.append(Pair(row.text, row.label))
        lines.append(row.number)
    if not pairs:
        raise DataError(f"{path}: there is no line with a text and a label, so nothing is left to read.")
    return Loaded(pairs, skipped, Origin((path, path), lines))


def check_label(path: str | Path, row: Row, known: Collection[str] | None) -> None:
    """Refuse a label with white space around it, which looks like another one, and a label outside the set."""
    if row.label != row.label.strip():
        raise DataError(
            f"{path}:{row.number}: the label {row.label[:40]!r} has white space around it, which would make another "
            "label of it. Take the white space out."
        )
    if known is not None and row.label not in known:
        raise DataError(
            f"{path}:{row.number}: the label {row.label[:40]!r} is not one of those in the training text, so no model "
            f"could give it. {suggestion(row.label[:40], list(known)[:20])} Mend the line, or take it out."
        )


def refuse_one_class(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text in which all labels are one: there is nothing to learn."""
    first = pairs[0].target
    if all(pair.target == first for pair in pairs):
        raise DataError(
            f"{path}: a classifier learns from two labels or more, but all {len(pairs)} lines have {first[:40]!r}. "
            "Add texts of another label, or name the right column by data.label_column."
        )


def from_tsv(path: str | Path, columns: Columns) -> Iterator[Row]:
    """The rows of a TSV file. Errors: `DataError` for a missing column, and for a line with more or fewer than it."""
    lines = read_lines(path)
    names = lines[0].split("\t") if columns.header or by_name(columns.text) or by_name(columns.label) else None
    text = place_of(columns.text, "text", 1, path, names)
    label = place_of(columns.label, "label", 2, path, names)
    if text == label:
        raise ConfigError(f"Text and label stand in two columns, but both are column {text + 1} of {path}. Name two.")
    asked = columns.text is not None or columns.label is not None
    width = len(names) if names is not None else lines[0].count("\t") + 1 if asked else 2
    for number, line in enumerate(lines, start=1):
        if number == 1 and names is not None:
            continue
        cells = line.split("\t") if line.strip() else [""] * width
        if len(cells) <= max(text, label) or len(cells) != width:
            shape = "text, TAB, label" if not asked and names is None else f"{width} columns, as the first line has"
            raise DataError(
                f"{path}:{number}: a line is {shape}, but this one has {len(cells)} "
                f"{'column' if len(cells) == 1 else 'columns'}: {line[:60]!r}. Separate the columns by one TAB each, "
                "or name those of text and label by data.text_column and data.label_column."
            )
        yield Row(number, cells[text], cells[label])


def by_name(column: str | None) -> bool:
    """Whether a column is given by its name."""
    return column is not None and not column.isdecimal()


def place_of(column: str | None, what: str, usual: int, path: str | Path, names: Sequence[str] | None) -> int:
    """The place of a column, counted from 0. Errors: `DataError` naming the columns that there are."""
    if by_name(column):
        assert names is not None
        if column in names:
            return names.index(column)
        raise DataError(
            f"{path}:1: there is no column {column!r}, which data.{what}_column names. {suggestion(str(column), names)}"
        )
    place = int(column or usual)
    if place < 1 or (names is not None and place > len(names)):
        there = f"{len(names)} columns: {', '.join(map(repr, names))}" if names else "columns counted from 1"
        raise DataError(f"{path}:1: data.{what}_column is {place}, but the file has {there}. Name one of them.")
    return place - 1


def from_json(path: str | Path, columns: Columns) -> Iterator[Row]:
    """The rows of a JSONL file. Errors: `DataError` for a line that is no JSON object, and for a missing field."""
    if columns.header:
        raise ConfigError(
            f"{path}: a .jsonl file names its fields in each line and has no header line; got data.header=True. "
            "Leave data.header out."
        )
    text, label = columns.text or "text", columns.label or "label"
    for number, line in enumerate(read_lines(path), start=1):
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise DataError(
                f"{path}:{number}: a line is one JSON object, but this one is not valid JSON ({reason[:80]}): "
                f"{line[:60]!r}. Write each object on one line, as json.dumps does, and nothing between."
            ) from None
        if not isinstance(value, dict):
            raise DataError(f"{path}:{number}: a line is one JSON object, but this one is {line[:60]!r}.")
        record = cast("dict[str, object]", value)
        yield Row(number, *(field_of(record, name, path, number) for name in (text, label)))


def field_of(record: dict[str, object], name: str, path: str | Path, number: int) -> str:
    """A field as text; a whole number is written out, as labels often are numbers."""
    if name not in record:
        raise DataError(
            f"{path}:{number}: the object has no field {name!r}. {suggestion(name, record)} "
            "Name the fields by data.text_column and data.label_column."
        )
    value = record[name]
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"{path}:{number}: the field {name!r} must be text or a whole number; got {json.dumps(value)[:60]}. "
        "Write it in quotes."
    )
