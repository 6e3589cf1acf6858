r"""Read pairs of texts from files, plain or gzip. Nothing is silently dropped.

two parallel files            line i of one belongs to line i of the other
TSV (any name), CSV (.csv)    a good film\tein guter Film       columns by number, or by name if line 1 has names
JSON (.jsonl, .ndjson, ...)   {"source": "a good film", "target": "ein guter Film"}, one on each line, or an array
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.json_lines import Record, is_json, records_of, text_in, value_in
from glassformer.data.lines import Opened, lines_of, opened
from glassformer.data.rows import (
    TABLE,
    Columns,
    Empty,
    Types,
    by_name,
    data_file,
    other_width,
    place_in,
    seems_header,
    table,
    two_columns,
)


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
        return place_in(self.paths[Pair._fields.index(side)], self.form, self.numbers[row])


@dataclass(frozen=True)
class Loaded:
    """The pairs, and how many were skipped because a side was empty."""

    pairs: list[Pair]
    skipped: int
    origin: Origin | None = field(default=None, compare=False)
    """None for pairs that a task has made."""


def gathered(
    rows: Iterable[Record],
    sample: Callable[[Record], Pair],
    paths: tuple[str | Path, str | Path],
    form: str,
    what: str,
    *,
    skip_empty: bool,
) -> Loaded:
    """The samples of all rows; those that lack something (`Empty`) are skipped and counted if `skip_empty` says so.

    Errors: `DataError` if there is not one of `what` a sample is.
    """
    pairs: list[Pair] = []
    numbers = array("q")
    skipped = 0
    for row in rows:
        try:
            pairs.append(sample(row))
        except Empty:
            if not skip_empty:
                raise
            skipped += 1
            continue
        numbers.append(row.number)
    if not pairs:
        raise DataError(f"{paths[0]}: there is no {what}, so nothing is left to read. Give another file.")
    return Loaded(pairs, skipped, Origin(paths, numbers, form))


# --- files with two sides


class Sides(NamedTuple):
    """What the two sides of a pair are called, and the settings of their columns."""

    names: tuple[str, str]
    settings: tuple[str, str]
    labels: bool = False
    """Whether the second one is a label."""

    @property
    def choice(self) -> str:
        """How columns are chosen, after the word "set"."""
        return f"{' and '.join(self.settings)} to those of {' and '.join(self.names)}"


PAIR = Sides(("source", "target"), ("data.source_field", "data.target_field"))


def read_pairs(*paths: str | Path, columns: Columns | None = None, skip_empty: bool = False) -> Loaded:
    """Read pairs from one file, or from two parallel ones.

    Errors: `DataError` naming file and line: for unequal numbers of lines, a line of another shape, a missing column or
    field, an empty side (skipped and counted with `skip_empty`), a first line that seems to name the columns, and what
    is not UTF-8 or not JSON.
    """
    columns = columns or Columns()
    if len(paths) == 1:
        loaded = read_sides(paths[0], PAIR, columns, skip_empty)
    else:
        loaded = _gathered(_parallel(paths, columns), (paths[0], paths[1]), TABLE, PAIR, columns, skip_empty)
    first = loaded.pairs[0]
    if may_be_header(loaded, columns) and _name_columns(first):
        raise seems_header(f"{paths[0]}:1", f"the pair of {first.source[:40]!r} and {first.target[:40]!r}", "pair")
    return loaded


def read_sides(path: str | Path, sides: Sides, columns: Columns, skip_empty: bool) -> Loaded:
    """Read the two sides of each line or object of one file. Errors: as `read_pairs`, but for a first line of names."""
    with data_file(path, columns, f"Set {sides.choice}") as (file, form):
        rows = _from_table(file, path, sides, columns) if form == TABLE else records_of(file, path)
        return _gathered(rows, (path, path), form, sides, columns, skip_empty)


def may_be_header(loaded: Loaded, columns: Columns) -> bool:
    """Whether the first pair is the first line of a table, and nobody said whether that names the columns."""
    origin = loaded.origin
    unsaid = columns.header is None and not columns.named
    return unsaid and origin is not None and origin.form == TABLE and origin.numbers[0] == 1


def _gathered(
    rows: Iterable[Record],
    paths: tuple[str | Path, str | Path],
    form: str,
    sides: Sides,
    columns: Columns,
    skip_empty: bool,
) -> Loaded:
    left, right = sides.names
    names = (columns.first or left, columns.second or right)
    remedy, types = f"Set {sides.choice}.", Types("label")

    def sample(row: Record) -> Pair:
        number, place, fields = row
        if fields is None:
            cells = ["", ""]
        elif form == TABLE:  # read as text, which takes no look at its type and characters
            cells = [str(cell) for cell in fields.values()]
        else:
            cells = [text_in(fields, name, place, remedy) for name in names]
        if not (cells[0].strip() and cells[1].strip()):
            at = 1 if cells[0].strip() else 0
            what = (
                f"the {sides.names[at]}{'' if sides.labels else ' side'} is empty, but a line needs {left} and {right}"
            )
            raise Empty(place_in(paths[at], form, number), what)
        if sides.labels and form != TABLE and fields is not None:
            types.check(value_in(fields, names[1], place, remedy), cells[1], number, place)
        return Pair(*cells)

    return gathered(rows, sample, paths, form, f"line with a {left} and a {right}", skip_empty=skip_empty)


def _parallel(paths: Sequence[str | Path], columns: Columns) -> Iterator[Record]:
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
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        if number > 1 or not columns.header:
            yield Record(number, f"{paths[0]}:{number}", {"source": source, "target": target})


def _side(file: Opened, path: str | Path, name: str | None, setting: str, columns: Columns) -> Iterator[str]:
    """The texts of one of two parallel files: its lines, or a field of its objects."""
    remedy = f"Set {setting} to the field of the text"
    if not is_json(file.stream, path, columns.json, fields=by_name(name), remedy=remedy, header=columns.header):
        if name is not None:
            raise ConfigError(
                f"{setting}={name!r} chooses a column of one file with both sides, or a field of JSON lines, but "
                f"{path} has one text on each line. Remove {setting}."
            )
        yield from lines_of(file, path)
        return
    for record in records_of(file, path):
        yield "" if record.fields is None else text_in(record.fields, name or "text", record.place, f"{remedy}.")


def _from_table(file: Opened, path: str | Path, sides: Sides, columns: Columns) -> Iterator[Record]:
    sign, rows = table(file, path, comma=str(path).lower().removesuffix(".gz").endswith(".csv"))
    named = bool(columns.header) or columns.named
    chosen = named or columns.first is not None or columns.second is not None
    first, second = sides.names
    width, left, right = 0, 0, 0
    for number, cells in rows:
        if not width:
            width = len(cells) if chosen else 2
            left, right = two_columns(columns, sides.settings, sides.names, f"{path}:1", cells, named=named)
            if named:
                continue
        place = f"{path}:{number}"
        if not any(cell.strip() for cell in cells):
            yield Record(number, place, None)
            continue
        if len(cells) <= max(left, right) or len(cells) != width:
            wanted = "have {width} columns, as the first line has" if chosen else "be {0}, {sign}, {1}"
            cut = "" if sign == "comma" or len(cells) < 3 else ", or leave out the others: cut -f1,2 OLD > NEW"
            raise other_width(
                place,
                cells,
                wanted.format(*sides.names, width=width, sign=sign),
                f"Separate columns by one {sign}; with more of them, set {sides.choice}{cut}",
            )
        yield Record(number, place, {first: cells[left], second: cells[right]})


# --- a first line that names the columns, although nobody said so: it would be learned

SIDES = frozenset((
    "source", "src", "target", "tgt", "trg", "input", "inputs", "output", "outputs", "prompt", "prompts",
    "completion", "instruction", "response", "reply", "query", "question", "answer", "answers", "text", "texts",
    "sentence", "sentences", "article", "document", "summary", "highlights", "title", "headline", "original",
    "reference", "translation", "translated", "corrected", "noisy", "clean", "english", "german", "french", "spanish",
    "italian", "portuguese", "dutch", "russian", "chinese", "japanese", "lang", "language", "deutsch", "englisch",
    "français", "español", "italiano", "português", "nederlands", "word", "words", "phoneme", "phonemes", "spelling",
    "pronunciation", "frage", "antwort", "context", "correct", "incorrect", "correction", "error", "wrong", "right",
    "erroneous",
    "user", "assistant", "human", "bot", "gpt", "utterance", "dialogue", "dialog", "conversation", "turn", "premise",
    "hypothesis", "lemma", "form", "inflection", "infinitive", "code", "docstring", "sql", "formal", "informal",
    "simple", "complex", "paraphrase", "grapheme", "graphemes", "transcription", "transliteration", "romanization",
    "gloss", "number", "numbers", "string", "label", "labels", "raw", "normalized", "id", "content", "description",
    "abstract", "keywords", "arabic", "bengali", "bulgarian", "catalan", "croatian", "czech", "danish", "estonian",
    "finnish", "greek", "hebrew", "hindi", "hungarian", "icelandic", "indonesian", "irish", "japanese", "korean",
    "latin", "latvian", "lithuanian", "malay", "norwegian", "persian", "polish", "romanian", "serbian", "slovak",
    "slovenian", "swahili", "swedish", "tamil", "thai", "turkish", "ukrainian", "urdu", "vietnamese", "welsh",
    "quelle", "ziel", "satz", "wort", "mot", "phrase", "palabra", "frase", "pregunta", "respuesta", "réponse",
    "исходный", "перевод", "вопрос", "ответ", "原文", "译文", "訳文", "源语言", "目标语言", "问题", "回答",
    "中文", "英文", "翻译", "日本語", "英語", "質問",
))  # fmt: skip
"""Words that the names of columns of pairs are made of."""
LANGUAGES = frozenset((
    "ar", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "he", "hi", "hu", "id", "it", "ja", "ko", "nl", "no",
    "pl", "pt", "ro", "ru", "sv", "tr", "uk", "vi", "zh", "ara", "ces", "cze", "dan", "deu", "ger", "ell", "gre", "eng",
    "spa", "fra", "fre", "heb", "hin", "hun", "ind", "ita", "jpn", "kor", "nld", "dut", "nor", "pol", "ron",
    "rum", "rus", "swe", "tur", "ukr", "vie", "zho", "chi",
))  # fmt: skip


def _name_columns(pair: Pair) -> bool:
    """Whether both sides are made of words that columns are called by, or are codes of languages ("en", "de_DE")."""
    sides = [side.strip().casefold() for side in pair]
    if sides[0] == sides[1]:
        return False
    if all(
        re.fullmatch(r"[a-z]{2,3}([_-][a-z]{2,4})?", side) and re.split("[_-]", side)[0] in LANGUAGES for side in sides
    ):
        return True
    words = [re.findall(r"[^\W\d_]+", side) for side in sides if re.fullmatch(r"#? ?[\w \".:()-]+", side)]
    return len(words) == 2 and all(
        0 < len(each) <= 3 and (SIDES | LANGUAGES).issuperset(each) and not SIDES.isdisjoint(each) for each in words
    )
