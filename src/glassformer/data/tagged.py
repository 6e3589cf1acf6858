r"""Sentences whose words have a tag each: read from files, or made. Nothing is silently dropped.

columns (any name)            a word on each line, Paris\tB-LOC, and a blank line between sentences; TABs or spaces
JSON (.jsonl, .ndjson, ...)   {"tokens": ["in", "Paris"], "tags": ["O", "B-LOC"]}, one sentence on each line

A sentence is a `Pair`: its words and its tags, each joined by spaces, so no word has white space in it. Lines that
begin with -DOCSTART- stand between documents in the files of CoNLL-2003; they are no words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from random import Random
from typing import cast

from glassformer.base.errors import DataError
from glassformer.data.config import DataConfig
from glassformer.data.json_lines import Object, Record, records_of, text_of, value_in
from glassformer.data.lines import lines_of
from glassformer.data.pairs import Loaded, Pair, gathered
from glassformer.data.rows import (
    TABLE,
    Columns,
    Empty,
    Types,
    data_file,
    not_in_training,
    other_width,
    seems_header,
    two_columns,
)
from glassformer.data.synthetic import below, hashed, split_of
from glassformer.data.tokens.vocabulary import NO_WORD, Tokenizer, utf8

DOCUMENT = "-DOCSTART-"
SETTINGS = ("data.text_column", "data.label_column")
COMMENTS = "Leave out lines of comments, as CoNLL-U has them: grep -v '^# ' OLD > NEW"
WAYS = "Separate columns by {}, and sentences by a blank line"
REMEDY = f"Set {' and '.join(SETTINGS)} to those of words and tags"


def read_tagged(
    path: str, columns: Columns, known: Collection[str] | None = None, *, skip_empty: bool = False
) -> Loaded:
    """Read the sentences of a file. `known`: the tags that are allowed; None: any.

    Errors: `DataError` naming file and line: for a line of another shape, a missing column or field, a word or a tag
    with white space in it, a tag outside the set, an object without words (skipped and counted with `skip_empty`), no
    sentence at all, and what is not UTF-8 or not JSON.
    """
    usual, types = ("tokens", "tags"), Types("tag")

    def sample(row: Record) -> Pair:
        number, place, fields = row
        names = usual if form == TABLE else (columns.first or usual[0], columns.second or usual[1])
        words, tags = ([] if fields is None else _list_in(fields, name, place) for name in names)
        if not words or not tags:
            raise Empty(place, "a sentence needs words and tags, but here is none")
        if len(words) != len(tags):
            raise DataError(
                f"{place}: every word needs one tag, but there are {len(words)} words and {len(tags)} tags. Give as "
                "many tags as words."
            )
        pair: list[tuple[str, str]] = []
        for at, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if not isinstance(word, str):
                raise DataError(
                    f"{place}: the field {names[0]!r} must be a list of texts, one for each word; got {words!r:.60}. "
                    "Write the words, and not their numbers."
                )
            here = f"{path}:{number + at}" if form == TABLE else place  # a sentence has no blank line in it
            pair.append((word, text_of(tag, names[1], here)))
            types.check(tag, pair[-1][1], number, here)
            _check(*pair[-1], here, known)
        return Pair(*map(" ".join, zip(*pair, strict=True)))

    with data_file(path, columns, REMEDY) as (file, form):
        rows = _from_lines(lines_of(file, path), path, columns) if form == TABLE else records_of(file, path)
        return gathered(rows, sample, (path, path), form, "sentence in this file", skip_empty=skip_empty)


def _from_lines(lines: Iterator[str], path: str, columns: Columns) -> Iterator[Record]:
    """Sentences of lines with a word each; a blank line ends one."""
    named = bool(columns.header) or columns.named
    width, words_at, tags_at, sign = 0, 0, 0, "white space"
    first, words, tags = "", list[object](), list[object]()
    for number, line in enumerate(chain(lines, [""]), start=1):
        place = f"{path}:{number}"
        if not line.strip() or line.startswith(DOCUMENT):
            if words:
                begins = number - len(words)
                yield Record(begins, f"{path}:{begins}", {"tokens": words, "tags": tags})
            words, tags = [], []
            continue
        if not width:
            sign = "one TAB" if "\t" in line else "white space"
        cells = line.split("\t") if sign == "one TAB" else line.split()
        if not width:
            width, first = len(cells), line
            if width < 2:
                raise other_width(place, cells, "have a word and its tag", WAYS.format("one TAB or by white space"))
            words_at, tags_at = two_columns(
                columns, SETTINGS, ("words", "tags"), place, cells, usual=(1, width), named=True
            )
            if named:
                continue
            word, tag = cells[words_at], cells[tags_at]
            if columns.header is None and word.casefold() in WORDS and tag.casefold() in TAGS:
                raise seems_header(place, f"the word {word[:40]!r} with the tag {tag[:40]!r}", "word")
        if len(cells) != width:
            remedy = COMMENTS if "#" in (line[0], first[0]) else WAYS.format(sign)
            raise other_width(place, cells, f"have {width} columns, as the first line has", remedy)
        words.append(cells[words_at])
        tags.append(cells[tags_at])


WORDS = frozenset(("word", "words", "token", "tokens", "form", "text"))
TAGS = frozenset(
    ("tag", "tags", "label", "labels", "pos", "pos_tag", "upos", "xpos", "ner", "ner_tag", "chunk", "entity")
)
"""Usual names of the columns."""


def _list_in(fields: Object, name: str, place: str) -> list[object]:
    """The list in a field; empty for null."""
    value = value_in(fields, name, place, f"{REMEDY}.")
    if value is not None and not isinstance(value, list):
        raise DataError(
            f"{place}: the field {name!r} must be a list of at least one text; got {value!r:.60}. Write one text for "
            "each word."
        )
    return cast("list[object]", value or [])


def _check(word: str, tag: str, place: str, known: Collection[str] | None) -> None:
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
        raise not_in_training(place, "tag", tag, known, "its sentence.")


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
    "ban", "dor", "esh", "fall", "gan", "hem", "ik", "jar",
    "kin", "lund", "mar", "nia", "ost", "rin", "sen", "to",
)  # fmt: skip
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
