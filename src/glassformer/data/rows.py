"""What all files of samples have in common: the columns that are chosen, the rows of a table, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import MOST, suggestion
from glassformer.data.json_lines import begins_as_array, is_json
from glassformer.data.lines import Opened, lines_of, opened

TABLE, JSON_LINES, ARRAY = "table", "JSON lines", "array"
"""The forms of files."""


class Columns(NamedTuple):
    """The columns of the two sides: names, or numbers from 1; in JSON the names of fields, "a.b" for a nested one.

    None: the first and the second column; in JSON the fields that are called as the sides.
    """

    first: str | None = None
    second: str | None = None
    header: bool | None = None
    """Whether the first line names the columns; implied if one is given by name. None: nobody said."""
    json: bool | None = None
    """Whether files hold JSON. None: as their names say; what only looks like it is refused unless a field is named."""

    @property
    def named(self) -> bool:
        """Whether a column is given by its name."""
        return by_name(self.first) or by_name(self.second)


def by_name(column: str | None) -> bool:
    """Whether a column is given by its name; a number has at most nine digits."""
    return column is not None and not (column.isdecimal() and len(column) < 10)


class Empty(DataError):
    """Nothing stands where a sample needs something. With data.skip_empty such lines are skipped and counted."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(
            f"{place}: {what}. Correct the line, or set data.skip_empty = true to skip and count such lines."
        )


def place_in(path: str | Path, form: str, number: int) -> str:
    """FILE:LINE, or FILE[N] in an array."""
    return f"{path}[{number}]" if form == ARRAY else f"{path}:{number}"


@contextmanager
def data_file(path: str | Path, columns: Columns, remedy: str) -> Generator[tuple[Opened, str], None, None]:
    """Open a file of samples, to be read in its form, which is returned, too. `remedy`: see `is_json`.

    Errors: `DataError`, and `ConfigError` for JSON that is to have a header line.
    """
    with opened(path) as file:
        found = is_json(file.stream, path, columns.json, fields=columns.named, remedy=remedy, header=columns.header)
        yield file, TABLE if not found else ARRAY if begins_as_array(file.stream) else JSON_LINES


# --- tables


def table(file: Opened, path: str | Path, *, comma: bool) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """What stands between the columns of a table, with the number and the cells of each of its lines.

    That is a TAB, or, with `comma`, a comma if the first line has no TAB. Errors: `DataError`.
    """
    lines = lines_of(file, path)
    first = next(lines)
    lines = chain([first], lines)
    if comma and "\t" not in first:
        return "comma", csv_rows(lines, path)
    return "TAB", ((number, line.split("\t")) for number, line in enumerate(lines, start=1))


def csv_rows(lines: Iterable[str], path: str | Path | None = None) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each row of CSV in a file, or in a line (`path` None).

    A quoted cell may hold commas, and go over several lines. Errors: `DataError`.
    """
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    number = 1
    try:
        for cells in reader:
            yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        place = "" if path is None else f"{path}:{number}: "  # a caller with one line says which it is
        raise DataError(f"{place}this is no row of CSV ({error}). Write it again with quotes.") from None


def counted(cells: Sequence[object]) -> str:
    """How many columns these are."""
    return f"{len(cells)} {'column' if len(cells) == 1 else 'columns'}"


def other_width(place: str, cells: Sequence[str], wanted: str, remedy: str) -> DataError:
    """The error for a line with another number of columns than are `wanted`."""
    return DataError(
        f"{place}: a line must {wanted}, but this one has {counted(cells)}: {chr(9).join(cells)[:60]!r}. {remedy}."
    )


def seems_header(place: str, learned_as: str, sample: str) -> DataError:
    """The error for a first line that seems to name the columns, although nobody said so: it would be learned."""
    return DataError(
        f"{place}: the first line seems to name the columns, but would be learned as {learned_as}. Set data.header = "
        f"true if it names the columns, or data.header = false if it is a {sample}."
    )


def two_columns(
    columns: Columns,
    settings: tuple[str, str],
    names: Sequence[str],
    place: str,
    first: Sequence[str],
    *,
    usual: tuple[int, int] = (1, 2),
    named: bool,
) -> tuple[int, int]:
    """The indices of two columns, from 0, in a file whose first line, at `place`, has the cells `first`.

    `usual`: their numbers if they are not chosen; `names`: what they are called; `named`: the first line has names, or
    surely both columns. Errors: `DataError` for one that is not there, `ConfigError` for the same one twice.
    """
    left, right = (
        _index(column, setting, default, place, first, named=named)
        for column, setting, default in zip(columns[:2], settings, usual, strict=True)
    )
    if left == right:
        raise ConfigError(
            f"{place}: {' and '.join(names)} must be in two columns, but both are column {left + 1}. Set "
            f"{' and '.join(settings)} to different ones."
        )
    return left, right


def _index(column: str | None, setting: str, usual: int, place: str, first: Sequence[str], *, named: bool) -> int:
    shown = [each[:40] for each in first[:20]]
    if by_name(column):
        if column in first:
            return first.index(column)
        hint = suggestion(str(column)[:40], shown)
        raise DataError(f"{place}: {setting} is {column!r:.60}, but the first line has no such column. {hint}")
    number = int(column or usual)
    if number < 1 or ((named or column is not None) and number > len(first)):
        raise DataError(
            f"{place}: {setting} is {number}, but the first line has {counted(first)}, counted from 1: "
            f"{', '.join(map(repr, shown))}. Give one of them."
        )
    return number - 1


# --- labels and tags


class Types:
    """The type that each label of a JSON file has; a number and its digits would be one label."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.seen: dict[str, tuple[str, int]] = {}

    def check(self, value: object, text: str, number: int, place: str) -> None:
        """Take in the value of a label, and what it is as text. Errors: `DataError` for another type than before."""
        kind = "text" if isinstance(value, str) else "a truth value" if isinstance(value, bool) else "a number"
        before, first = self.seen.setdefault(text, (kind, number))
        if kind != before:
            raise DataError(
                f"{place}: a {self.what} must have the same type in all lines, but {text[:40]!r} is {kind} here and "
                f"{before} in line {first}. If they are the same {self.what}, write both the same way; if not, give "
                "them different names."
            )


def not_in_training(place: str, what: str, found: str, known: Collection[str], remedy: str) -> DataError:
    """The error for a label or a tag that training has not seen."""
    few = len(known) <= MOST
    hint = suggestion(found[:40], [each[:40] for each in known]) if few else f"It has {len(known):,} {what}s."
    return DataError(
        f"{place}: the {what} {found[:40]!r} does not occur in the training text, so no model could learn it. {hint} "
        f"Correct the line, or remove {remedy} If another column has the {what}, set data.label_column."
    )
