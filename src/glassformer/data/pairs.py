r"""Read pairs of texts, or texts with a label each, from files, plain or gzip. Nothing is silently dropped.

two parallel files            line i of one belongs to line i of the other
TSV (any name), CSV (.csv)    a good film\t1         columns by number, or by name if the first line names them
JSON (.jsonl, .ndjson, ...)   {"text": "a good film", "label": 1}, one on each line, or an array of such objects
"""

from __future__ import annotations

import csv
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import suggestion
from glassformer.data.lines import Opened, is_json, lines_of, opened, records_of, text_in, value_in


class Pair(NamedTuple):
    """A source text and its target text, or a text and its label."""

    source: str
    target: str


@dataclass(frozen=True)
class Origin:
    """Where pairs come from: the files of source and target (mostly one), and the line or object of each pair."""

    paths: tuple[str | Path, str | Path]
    numbers: Sequence[int]
    """Of lines, or of objects in an array, from 1."""
    form: str
    """TABLE, JSON_LINES or ARRAY."""

    def place(self, row: int, side: str) -> str:
        """FILE:LINE of one side ("source" or "target") of pair `row`, from 0; FILE[N] in an array."""
        return _place(self.paths[Pair._fields.index(side)], self.form, self.numbers[row])


@dataclass(frozen=True)
class Loaded:
    """The pairs, and how many were skipped because a side was empty."""

    pairs: list[Pair]
    skipped: int
    origin: Origin | None = field(default=None, compare=False)
    """None for pairs that a task has made."""


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


class Sides(NamedTuple):
    """What the two sides of a pair are called, and the settings of their columns."""

    names: tuple[str, str]
    settings: tuple[str, str]

    @property
    def choice(self) -> str:
        """How columns are chosen, after the word "set"."""
        return f"{' and '.join(self.settings)} to those of {' and '.join(self.names)}"


TABLE, JSON_LINES, ARRAY = "table", "JSON lines", "array"
PAIR = Sides(("source", "target"), ("data.source_field", "data.target_field"))
TEXT_AND_LABEL = Sides(("text", "label"), ("data.text_column", "data.label_column"))


class Row(NamedTuple):
    """What one line of a file, or one object, says of a pair."""

    number: int
    cells: tuple[str, str]
    form: str


def read_pairs(*paths: str | Path, columns: Columns | None = None, skip_empty: bool = False) -> Loaded:
    """Read pairs from one file, or from two parallel ones.

    Errors: `DataError` naming file and line: for unequal numbers of lines, a line of another shape, a missing column or
    field, an empty side (skipped and counted with `skip_empty`), a first line that seems to name the columns, and what
    is not UTF-8 or not JSON.
    """
    columns = columns or Columns()
    rows = _rows(paths[0], PAIR, columns) if len(paths) == 1 else _parallel(paths, columns)
    loaded, may_be_header = _loaded(rows, (paths[0], paths[-1]), PAIR, columns, skip_empty)
    first = loaded.pairs[0]
    if may_be_header and _name_columns(first):
        raise DataError(
            f"{paths[0]}:1: the first line seems to name the columns, but would be learned as the pair of "
            f"{first.source[:40]!r} and {first.target[:40]!r}. Set data.header = true if it names the columns, or "
            "data.header = false if it is a pair."
        )
    return loaded


def read_labelled(
    path: str | Path, columns: Columns | None = None, skip_empty: bool = False, known: Collection[str] | None = None
) -> Loaded:
    """Read the texts and labels of a file as pairs. `known`: the labels that are allowed; None: any.

    Errors: as `read_pairs`, and for a label outside the set or of another type than before.
    """
    columns = columns or Columns()
    rows = _rows(path, TEXT_AND_LABEL, columns)
    loaded, may_be_header = _loaded(rows, (path, path), TEXT_AND_LABEL, columns, skip_empty)
    for row, pair in enumerate(loaded.pairs):
        _check_label(loaded, row, pair.target, known, unsaid=may_be_header and row == 0)
    if may_be_header and known is None:
        _refuse_unsaid_header(path, loaded.pairs)
    return loaded


def refuse_one_class(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text with only one label: there is nothing to learn."""
    first = pairs[0].target
    if all(pair.target == first for pair in pairs):
        raise DataError(
            f"{path}: a classifier needs at least two labels, but all {len(pairs)} lines have {first[:40]!r}. "
            "Add texts with another label, or set data.label_column to the right column."
        )


def _loaded(
    rows: Iterable[Row], paths: tuple[str | Path, str | Path], sides: Sides, columns: Columns, skip_empty: bool
) -> tuple[Loaded, bool]:
    """The pairs without those that have an empty side, and whether the first may be a header that nobody spoke of."""
    pairs: list[Pair] = []
    numbers = array("q")
    skipped, form, side = 0, TABLE, " side" if sides is PAIR else ""
    for number, cells, form in rows:
        empty = [place for place in (0, 1) if not cells[place].strip()]
        if empty and not skip_empty:
            raise DataError(
                f"{_place(paths[empty[0]], form, number)}: the {sides.names[empty[0]]}{side} is empty, but a line "
                f"needs {sides.names[0]} and {sides.names[1]}. Correct the line, or set data.skip_empty = true to skip "
                "and count such lines."
            )
        if empty:
            skipped += 1
        else:
            pairs.append(Pair(*cells))
            numbers.append(number)
    if not pairs:
        raise DataError(
            f"{paths[0]}: there is no line with a {sides.names[0]} and a {sides.names[1]}, so nothing is left to read. "
            "Give another file."
        )
    unsaid = columns.header is None and not columns.named
    return Loaded(pairs, skipped, Origin(paths, numbers, form)), unsaid and form == TABLE and numbers[0] == 1


def _place(path: str | Path, form: str, number: int) -> str:
    return f"{path}[{number}]" if form == ARRAY else f"{path}:{number}"


# --- the rows of files


def _parallel(paths: Sequence[str | Path], columns: Columns) -> Iterator[Row]:
    """Pair line i of one file with line i of the other."""
    with ExitStack() as stack:
        files = [stack.enter_context(opened(path)) for path in paths]
        sides = [
            list(_side(file, path, field, setting, columns))
            for file, path, field, setting in zip(files, paths, columns[:2], PAIR.settings, strict=True)
        ]
    sources, targets = sides
    if len(sources) != len(targets):
        raise DataError(
            f"Parallel files must have the same number of lines, but {paths[0]} has {len(sources)} lines and "
            f"{paths[1]} has {len(targets)}. Align them again: a missing or extra line shifts all that follow."
        )
    for number, cells in enumerate(zip(sources, targets, strict=True), start=1):
        if number > 1 or not columns.header:
            yield Row(number, cells, TABLE)


def _side(file: Opened, path: str | Path, name: str | None, setting: str, columns: Columns) -> Iterator[str]:
    """The texts of one of two parallel files: its lines, or a field of its objects."""
    remedy = f"Set {setting} to the field of the text"
    if not is_json(file.stream, path, columns.json, fields=by_name(name), remedy=remedy):
        if name is not None:
            raise ConfigError(
                f"{setting}={name!r} chooses a column of one file with both sides, or a field of JSON lines, but "
                f"{path} has one text on each line. Remove {setting}."
            )
        yield from lines_of(file, path)
        return
    _refuse_header(path, columns)
    for record in records_of(file, path):
        yield "" if record.fields is None else text_in(record.fields, name or "text", record.place, f"{remedy}.")


def _rows(path: str | Path, sides: Sides, columns: Columns) -> Iterator[Row]:
    with opened(path) as file:
        as_json = is_json(file.stream, path, columns.json, fields=columns.named, remedy=f"Set {sides.choice}")
        yield from (_from_json if as_json else _from_table)(file, path, sides, columns)


def _refuse_header(path: str | Path, columns: Columns) -> None:
    if columns.header:
        raise ConfigError(
            f"{path}: JSON names the fields in each object and has no header line; got data.header=True. Remove "
            "data.header."
        )


def _from_json(file: Opened, path: str | Path, sides: Sides, columns: Columns) -> Iterator[Row]:
    _refuse_header(path, columns)
    names = (columns.first or sides.names[0], columns.second or sides.names[1])
    remedy = f"Set {sides.choice}."
    types: dict[str, tuple[str, int]] = {}
    for number, place, fields in records_of(file, path):
        form = ARRAY if place.endswith("]") else JSON_LINES
        if fields is None:
            yield Row(number, ("", ""), form)
            continue
        cells = (text_in(fields, names[0], place, remedy), text_in(fields, names[1], place, remedy))
        if sides is TEXT_AND_LABEL:
            value = value_in(fields, names[1], place, remedy)
            kind = "text" if isinstance(value, str) else "a truth value" if isinstance(value, bool) else "a number"
            before, first = types.setdefault(cells[1], (kind, number))
            if kind != before:
                raise DataError(
                    f"{place}: a label must have the same type in all lines, but {cells[1][:40]!r} is {kind} here and "
                    f"{before} in line {first}. If they are the same label, write both the same way; if not, give them "
                    "different names."
                )
        yield Row(number, cells, form)


def _from_table(file: Opened, path: str | Path, sides: Sides, columns: Columns) -> Iterator[Row]:
    lines = lines_of(file, path)
    first = next(lines)
    comma = str(path).lower().removesuffix(".gz").endswith(".csv") and "\t" not in first
    rows = (
        csv_rows(chain([first], lines), path)
        if comma
        else ((number, line.split("\t")) for number, line in enumerate(chain([first], lines), start=1))
    )
    names = next(rows)[1]
    named = bool(columns.header) or columns.named
    chosen = named or columns.first is not None or columns.second is not None
    width = len(names) if chosen else 2
    left, right = (
        _place_of(column, setting, default, path, names, named=named)
        for column, setting, default in zip(columns[:2], sides.settings, (1, 2), strict=True)
    )
    if left == right:
        raise ConfigError(
            f"{path}: {' and '.join(sides.names)} must be in two columns, but both are column {left + 1}. Set "
            f"{' and '.join(sides.settings)} to different ones."
        )
    for number, cells in rows if named else chain([(1, names)], rows):
        if not any(cell.strip() for cell in cells):
            yield Row(number, ("", ""), TABLE)
            continue
        if len(cells) <= max(left, right) or len(cells) != width:
            sign = "comma" if comma else "TAB"
            usual = f"be {sides.names[0]}, {sign}, {sides.names[1]}"
            shape = f"have {width} columns, as the first line has" if chosen else usual
            cut = "" if comma or len(cells) < 3 else ", or leave out the others: cut -f1,2 OLD > NEW"
            raise DataError(
                f"{path}:{number}: a line must {shape}, but this one has {len(cells)} "
                f"{'column' if len(cells) == 1 else 'columns'}: {chr(9).join(cells)[:60]!r}. Separate columns by one "
                f"{sign}; with more of them, set {sides.choice}{cut}."
            )
        yield Row(number, (cells[left], cells[right]), TABLE)


def csv_rows(lines: Iterable[str], path: str | Path | None = None, sign: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each row of a file, or of a line (`path` None), with `sign` between cells.

    With commas, a quoted cell may hold them, and go over several lines. Errors: `DataError`.
    """
    quoting = csv.QUOTE_MINIMAL if sign == "," else csv.QUOTE_NONE
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, delimiter=sign, quoting=quoting)
    number = 1
    try:
        for cells in reader:
            yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        place = "" if path is None else f"{path}:{number}: "  # a caller with one line says which it is
        raise DataError(f"{place}this is no row of CSV ({error}). Write it again with quotes.") from None


def by_name(column: str | None) -> bool:
    """Whether a column is given by its name; a number has at most nine digits."""
    return column is not None and not (column.isdecimal() and len(column) < 10)


def _place_of(
    column: str | None, setting: str, usual: int, path: str | Path, first: Sequence[str], *, named: bool
) -> int:
    """The index of a column, from 0, in a file whose first line has the cells `first`, which may be column names."""
    shown = ", ".join(repr(each[:40]) for each in first[:20])
    if by_name(column):
        if column in first:
            return first.index(column)
        hint = suggestion(str(column)[:40], [each[:40] for each in first[:20]])
        raise DataError(f"{path}:1: {setting} is {column!r:.60}, but the first line has no such column. {hint}")
    place = int(column or usual)
    if place < 1 or ((named or column is not None) and place > len(first)):
        there = f"{len(first)} {'column' if len(first) == 1 else 'columns'}, counted from 1"
        raise DataError(f"{path}:1: {setting} is {place}, but the first line has {there}: {shown}. Give one of them.")
    return place - 1


# --- labels


BREAKS = ("Cc", "Zl", "Zp")
"""Unicode's categories of control characters and line ends."""


def _check_label(loaded: Loaded, row: int, label: str, known: Collection[str] | None, *, unsaid: bool) -> None:
    """Refuse a label with white space around it, which looks like another one, and a label outside the set.

    Also refuse a label with a line end or a TAB: labels are written one per line, and with their probabilities in
    columns. `unsaid`: nobody said whether this line names the columns.
    """
    place = str(loaded.origin and loaded.origin.place(row, "source"))
    if label != label.strip():
        raise DataError(
            f"{place}: the label {label[:40]!r} has white space around it, which would make it a different label. "
            "Remove the white space."
        )
    broken = next((each for each in label if unicodedata.category(each) in BREAKS), None)
    if broken is not None:
        raise DataError(
            f"{place}: a label is one line of text, but {label[:40]!r} contains {broken!r}, a line end, a TAB or "
            "another control character. Remove it."
        )
    if known is not None and label not in known:
        raise DataError(
            f"{place}: the label {label[:40]!r} does not occur in the training text, so no model could learn it. "
            f"{suggestion(label[:40], list(known)[:20])} Correct the line, or remove it."
            f"{' If line 1 names the columns, set data.header = true.' if unsaid else ''}"
        )


# --- a first line that names the columns, although nobody said so: it would be learned

TEXTS = ("text", "texts", "sentence", "sentences", "document", "content", "review", "comment", "message", "question")
LABELS = ("label", "labels", "class", "category", "target", "tag", "sentiment", "intent", "topic")
"""Usual names of the columns."""
OFTEN = 5
"""If each other label has this many texts, a label that only the first line has is probably the name of a column."""
SIDES = frozenset((
    "source", "src", "target", "tgt", "trg", "input", "inputs", "output", "outputs", "prompt", "prompts",
    "completion", "instruction", "response", "reply", "query", "question", "answer", "answers", "text", "texts",
    "sentence", "sentences", "article", "document", "summary", "highlights", "title", "headline", "original",
    "reference", "translation", "translated", "corrected", "noisy", "clean", "english", "german", "french", "spanish",
    "italian", "portuguese", "dutch", "russian", "chinese", "japanese", "lang", "language", "deutsch", "englisch",
    "français", "español", "italiano", "português", "nederlands", "word", "words", "phoneme", "phonemes", "spelling",
    "pronunciation", "frage", "antwort", "context", "correct", "incorrect",
))  # fmt: skip
"""Words that the names of columns of pairs are made of."""
LANGUAGES = frozenset((
    "ar", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "he", "hi", "hu", "id", "it", "ja", "ko", "nl", "no",
    "pl", "pt", "ro", "ru", "sv", "tr", "uk", "vi", "zh", "ara", "ces", "cze", "dan", "deu", "ger", "ell", "gre", "eng",
    "spa", "fra", "fre", "heb", "hin", "hun", "ind", "ita", "jpn", "kor", "nld", "dut", "nor", "pol", "ron",
    "rum", "rus", "swe", "tur", "ukr", "vie", "zho", "chi",
))  # fmt: skip


def _refuse_unsaid_header(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Refuse training text whose first line, the first of `pairs`, seems to name the columns.

    It does if no other line has its label and, besides, it has a usual name or every other label is frequent. A text
    can look like that, so the user must say which it is.
    """
    text, label = pairs[0]
    counts = Counter(pair.target for pair in pairs)
    if counts.pop(label) > 1:
        return
    usual = text.strip().casefold() in TEXTS or label.casefold() in LABELS
    if usual or (counts and min(counts.values()) >= OFTEN):
        raise DataError(
            f"{path}:1: the first line seems to name the columns, but would be learned as the text {text[:40]!r} with "
            f"the label {label[:40]!r}, which no other line has. Set data.header = true if it names the columns, or "
            "data.header = false if it is a text."
        )


def _name_columns(pair: Pair) -> bool:
    """Whether both sides are made of words that columns are called by, or are codes of languages ("en", "de_DE")."""
    sides = [side.strip().casefold() for side in pair]
    if sides[0] == sides[1]:
        return False
    if all(
        re.fullmatch(r"[a-z]{2,3}([_-][a-z]{2,4})?", side) and re.split("[_-]", side)[0] in LANGUAGES for side in sides
    ):
        return True
    words = [re.findall(r"[^\W\d_]+", side) for side in sides if re.fullmatch(r"[\w .-]+", side)]
    return len(words) == 2 and all(0 < len(each) <= 3 and SIDES.issuperset(each) for each in words)
