r"""Sentences whose words have a tag each: read from files, or made. Nothing is silently dropped.

columns (any name)            a word on each line, Paris\tB-LOC, and a blank line between sentences; TABs or spaces
JSON (.jsonl, .ndjson, ...)   {"tokens": ["in", "Paris"], "tags": ["O", "B-LOC"]}, one sentence on each line

A sentence is a `Pair`: its words and its tags, each joined by spaces, so no word has white space in it. Lines that
begin with -DOCSTART- stand between documents in the files of CoNLL-2003; they are no words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import NamedTuple

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import suggestion
from glassformer.data.config import DataConfig
from glassformer.data.lines import is_json, lines_of, opened, records_of, value_in
from glassformer.data.pairs import ARRAY, JSON_LINES, TABLE, Columns, Loaded, Origin, Pair, by_name
from glassformer.data.synthetic import below, hashed, split_of
from glassformer.data.tokens.vocabulary import NO_WORD, Tokenizer, utf8

DOCUMENT = "-DOCSTART-"
REMEDY = "Set data.text_column and data.label_column to those of words and tags"


class Sentence(NamedTuple):
    """The words of a sentence with their tags, and the place of each."""

    words: list[str]
    tags: list[str]
    places: list[str]
    number: int
    """Of its first line, or of its object, from 1."""


def read_tagged(path: str, columns: Columns, known: Collection[str] | None = None) -> Loaded:
    """Read the sentences of a file. `known`: the tags that are allowed; None: any.

    Errors: `DataError` naming file and line: for a line of another shape, a missing column or field, a word or a tag
    with white space in it, a tag outside the set, no sentence at all, and what is not UTF-8 or not JSON.
    """
    pairs: list[Pair] = []
    numbers: list[int] = []
    with opened(path) as file:
        as_json = is_json(file.stream, path, columns.json, fields=columns.named, remedy=REMEDY)
        form = ARRAY if as_json and file.stream.peek(1).lstrip()[:1] == b"[" else JSON_LINES if as_json else TABLE
        lines = lines_of(file, path)
        for sentence in _from_json(records_of(file, path), columns) if as_json else _from_lines(lines, path, columns):
            _check(sentence, known)
            pairs.append(Pair(" ".join(sentence.words), " ".join(sentence.tags)))
            numbers.append(sentence.number)
    if not pairs:
        raise DataError(f"{path}: there is no sentence in this file. Give another file.")
    return Loaded(pairs, 0, Origin((path, path), numbers, form))


def _from_lines(lines: Iterator[str], path: str, columns: Columns) -> Iterator[Sentence]:
    """Sentences of lines with a word each; a blank line ends one."""
    named = bool(columns.header) or columns.named
    width, chosen, sign = 0, (0, 0), "white space"
    sentence = Sentence([], [], [], 0)
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        if not line.strip() or line.startswith(DOCUMENT):
            if sentence.words:
                yield sentence
            sentence = Sentence([], [], [], 0)
            continue
        if not width:
            sign = "one TAB" if "\t" in line else "white space"
        cells = line.split("\t") if sign == "one TAB" else line.split()
        if not width:
            width = len(cells)
            chosen = _chosen(cells, columns, place)
            if named:
                continue
            if columns.header is None and _name_columns(cells[chosen[0]], cells[chosen[1]]):
                raise DataError(
                    f"{place}: the first line seems to name the columns, but would be learned as the word "
                    f"{cells[chosen[0]][:40]!r} with the tag {cells[chosen[1]][:40]!r}. Set data.header = true if it "
                    "names the columns, or data.header = false if it is a word."
                )
        if len(cells) != width:
            raise DataError(
                f"{place}: a line must have {width} columns, as the first line has, but this one has {len(cells)}: "
                f"{line[:60]!r}. Separate columns by {sign}, and sentences by a blank line."
            )
        sentence = sentence if sentence.words else Sentence([], [], [], number)
        sentence.words.append(cells[chosen[0]])
        sentence.tags.append(cells[chosen[1]])
        sentence.places.append(place)
    if sentence.words:
        yield sentence


WORDS = frozenset(("word", "words", "token", "tokens", "form", "text"))
TAGS = frozenset(
    ("tag", "tags", "label", "labels", "pos", "pos_tag", "upos", "xpos", "ner", "ner_tag", "chunk", "entity")
)
"""Usual names of the columns."""


def _name_columns(word: str, tag: str) -> bool:
    """Whether a line names its columns, in place of a word and its tag."""
    return word.casefold() in WORDS and tag.casefold() in TAGS


def _chosen(cells: Sequence[str], columns: Columns, place: str) -> tuple[int, int]:
    """The columns of words and tags, counted from 0, in lines like this first one."""
    if len(cells) < 2:
        raise DataError(
            f"{place}: a line must have a word and its tag, but this one has {len(cells)} column: {cells[0][:60]!r}. "
            "Separate columns by one TAB or by white space, and sentences by a blank line."
        )
    found: list[int] = []
    for column, setting, usual in zip(columns[:2], ("text_column", "label_column"), (1, len(cells)), strict=True):
        if by_name(column):
            if column not in cells:
                hint = suggestion(str(column)[:40], [each[:40] for each in cells[:20]])
                raise DataError(f"{place}: data.{setting} is {column!r:.60}, but the first line has none. {hint}")
            found.append(cells.index(str(column)))
            continue
        number = int(column or usual)
        if not 1 <= number <= len(cells):
            raise DataError(
                f"{place}: data.{setting} is {number}, but the first line has {len(cells)} columns, counted from 1: "
                f"{', '.join(repr(each[:40]) for each in cells[:20])}. Give one of them."
            )
        found.append(number - 1)
    if found[0] == found[1]:
        raise ConfigError(
            f"{place}: words and tags must be in two columns, but both are column {found[0] + 1}. Set "
            "data.text_column and data.label_column to different ones."
        )
    return found[0], found[1]


def _from_json(records: Iterator[object], columns: Columns) -> Iterator[Sentence]:
    if columns.header:
        raise ConfigError(
            "JSON names the fields in each object and has no header line; got data.header=True. Remove data.header."
        )
    names = (columns.first or "tokens", columns.second or "tags")
    for number, place, fields in records:  # pyright: ignore[reportGeneralTypeIssues]
        if fields is None:
            continue
        sides: list[list[str]] = []
        for name in names:
            value = value_in(fields, name, place, f"{REMEDY}.")
            if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
                raise DataError(
                    f"{place}: the field {name!r} must be a list of at least one text; got {value!r:.60}. Write one "
                    "text for each word."
                )
            sides.append(value)
        words, tags = sides
        if len(words) != len(tags):
            raise DataError(
                f"{place}: every word needs one tag, but there are {len(words)} words and {len(tags)} tags. Give as "
                "many tags as words."
            )
        yield Sentence(words, tags, [place] * len(words), number)


def _check(sentence: Sentence, known: Collection[str] | None) -> None:
    for word, tag, place in zip(sentence.words, sentence.tags, sentence.places, strict=True):
        for what, text in (("word", word), ("tag", tag)):
            try:
                utf8(text)
            except DataError as error:
                raise DataError(f"{place}: {error}") from None
            if text.split() != [text]:
                raise DataError(
                    f"{place}: a {what} is text without white space, but this one is {text[:40]!r}. Split it into "
                    "words, or remove the space."
                )
        if known is not None and tag not in known:
            raise DataError(
                f"{place}: the tag {tag[:40]!r} does not occur in the training text, so no model could learn it. "
                f"{suggestion(tag[:40], list(known)[:20])} Correct the line, or remove its sentence."
            )


# --- words and the pieces that a tokenizer cuts them into


def first_pieces(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """The ids of a text, and the place of the first piece of each of its words.

    Errors: `DataError` for a text in which the tokenizer finds other words than there are, as where it drops one.
    """
    ids = tokenizer.encode(text)
    words = tokenizer.words_of(ids)
    firsts = [at for at, word in enumerate(words) if word != NO_WORD and (at == 0 or words[at - 1] != word)]
    if len(firsts) != len(text.split()):
        raise DataError(
            f"A tag belongs to the first piece of each word, but of {len(text.split())} words in {text[:60]!r} the "
            f"tokenizer leaves {len(firsts)}. Remove words that it drops, or use another tokenizer.kind."
        )
    return ids, firsts


# --- sentences that are made

FIRST = ("ba", "do", "fen", "gar", "hul", "ka", "lor", "mi", "nes", "or", "pel", "ra", "sil", "tam", "ul")
SECOND = (
    "ban",
    "dor",
    "esh",
    "fall",
    "gan",
    "hem",
    "ik",
    "jar",
    "kin",
    "lund",
    "mar",
    "nia",
    "ost",
    "rin",
    "sen",
    "to",
)
PATTERNS = (
    "PER lives in LOC",
    "PER works for ORG",
    "PER and PER met in LOC",
    "ORG hired PER",
    "ORG opened a school in LOC",
    "the road from LOC to LOC is long",
    "yesterday PER left ORG",
    "in LOC it rained all day",
    "PER , who was born in LOC , leads ORG",
    "nobody has seen PER since monday",
)
"""What stands around a name tells its kind: all kinds have the same names."""


def make_tagged(config: DataConfig, split: str, seed: int) -> list[Pair]:
    """Make sentences with names of persons, places and organisations, tagged in BIO, as many as the settings say.

    A sentence depends only on (seed, split, index), and belongs to one split by the hash of its text.
    """
    found: list[Pair] = []
    for index in range(getattr(config, f"{split}_size")):
        draw = Random(hashed(f"{config.task}/{seed}/{split}/{index}"))
        made = _made(draw)
        while split_of(made.source) != split:
            made = _made(draw)
        found.append(made)
    return found


def _made(draw: Random) -> Pair:
    words: list[str] = []
    tags: list[str] = []
    for part in PATTERNS[below(draw, len(PATTERNS))].split():
        name = [part]
        if part.isupper():
            name = [
                FIRST[below(draw, len(FIRST))] + SECOND[below(draw, len(SECOND))] for _ in range(1 + below(draw, 2))
            ]
        words += name
        tags += [f"{'I' if at else 'B'}-{part}" for at in range(len(name))] if part.isupper() else ["O"]
    return Pair(" ".join(words), " ".join(tags))
