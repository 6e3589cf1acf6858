r"""Read running text of any size in pieces that fit in memory: from files, folders, or what ships with Python.

A text file is one document, each object of a JSON file is one, and the files of a folder follow each other.
UTF-8; a byte order mark at the start of a file is removed and "\r\n" becomes "\n"; nothing else is changed.

A document longer than a piece is cut where no token crosses (`data/tokens/cuts.py`), so the parts give its tokens.

A text is read more than once (to measure it, to train a tokenizer, to make its tokens), so it must be a file that can
be read again, with the same content each time.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError
from glassformer.data import lines
from glassformer.data.config import SPLITS, DataConfig
from glassformer.data.json_lines import checked, is_json, records_of, value_in
from glassformer.data.lines import CHUNK, MARK, Opened, decoded_chunks, no_such_file
from glassformer.data.tokens.vocabulary import ANYWHERE, WORDS, Cuts, codes_of, last_place, shares


class Stamp(NamedTuple):
    """The state of a file: another size or another time of the last change is another state."""

    path: str
    size: int
    changed: int
    """Nanoseconds."""


def text_files(path: str | Path) -> list[Path]:
    """The file, or all files of the folder and its subfolders, sorted by name, except hidden ones (".name").

    A file or folder that links make reachable in several ways is read once, where it is reached first. Errors:
    `DataError` for a folder that cannot be read or has no file, and for links without end.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = list(files_below(path, (path.resolve(),), {path.resolve()}))
    if not found:
        raise DataError(f"{path}: the folder has no file to read (hidden ones are not read). Give a folder with texts.")
    return found


def files_below(folder: Path, way: tuple[Path, ...], seen: set[Path]) -> Iterator[Path]:
    """Yield the files of a folder in sorted order, those of its subfolders in their place, except those in `seen`.

    `way`: the folders that led here, including this one; they and `seen`, to which more are added, have no links.
    """
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: the folder cannot be read ({error.strerror}). Give a readable folder.") from None
    for each in inside:
        is_folder = each.is_dir()
        # What is not a link has its real name from its folder's; `Path.resolve` raises for a link to itself.
        there = Path(os.path.realpath(each)) if each.is_symlink() else way[-1] / each.name
        if is_folder and any(passed.is_relative_to(there) for passed in way):
            raise DataError(f"{each} leads back to a folder that contains it, in an endless loop. Remove this link.")
        if there in seen:
            continue
        seen.add(there)
        if is_folder:
            yield from files_below(each, (*way, there), seen)
        else:
            yield each


def stamps(path: str | Path | None) -> tuple[Stamp, ...]:
    """The state of each file of a text; empty for the text that ships with Python. Errors: `DataError`."""
    return () if path is None else tuple(stamp_of(each, checked_file(each)) for each in text_files(path))


def checked_file(path: Path) -> os.stat_result:
    """The system's information about a file. Errors: `DataError` unless it is a file that can be read again."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the file cannot be read ({error}). Give a readable text file.") from None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(
            f"{path}: running text is read more than once, so it must be a file, but this is a pipe or a device. "
            "Write it to a file, and give that."
        )
    return found


def stamp_of(path: Path, found: os.stat_result) -> Stamp:
    """The state of a file, from the system's information about it."""
    return Stamp(str(path), found.st_size, found.st_mtime_ns)


@contextmanager
def opened(path: Path) -> Generator[Opened, None, None]:
    """Open a file for its bytes, unpacked.

    Errors: `DataError` for a file that cannot be read, and for one that changed before the block ended.
    """
    before = stamp_of(path, checked_file(path))
    with lines.opened(path) as file:
        yield file._replace(limit=math.inf)  # no more than a piece of it is kept
    if before != stamp_of(path, checked_file(path)):
        raise changed_while_read(path)


def changed_while_read(path: str | Path) -> DataError:
    """The error for a text that has changed since it was last looked at."""
    return DataError(
        f"{path} changed while it was read, so its parts may be of different versions. Wait until nothing writes to "
        "it, or give a copy of it."
    )


PIECE = CHUNK
"""The approximate length of a piece in characters."""
LONGEST_RUN = 2**24
"""Most characters without a place to cut: 16 million, a book without a space, or that white space at the start has."""
TOPICS = "pydoc_data.topics"
LEARN, SCORE = "learn from it", "score"
"""What a text is for."""


class DocumentPiece(NamedTuple):
    """A stretch of a document. An empty one that ends no document stands for an empty document that was skipped."""

    text: str
    ends: bool
    """Whether its document ends with it."""
    place: str
    """The file, or file:line, of the document."""


def pieces(
    path: str | Path | None,
    field: str | None = None,
    *,
    json: bool | None = None,
    skip_empty: bool = False,
    cuts: Cuts = WORDS,
    use: str = LEARN,
) -> Iterator[DocumentPiece]:
    """All documents of a file or folder, piece by piece; without a path, the topics of Python's documentation.

    `cuts`: where a document that is longer than a piece may be cut. `use`: what an empty document is no use for, in the
    error about it. Errors: `DataError` naming file and byte (or line) of what is not text, and for an empty document
    unless skipped.
    """
    if path is None:
        yield from topics(cuts)
        return
    for file in text_files(path):
        with opened(file) as text:
            if holds_json(text, file, field, json):
                for place, document_text in json_texts(text, file, field or "text"):
                    yield from document([document_text], place, skip_empty, cuts, use)
            else:
                yield from document(decoded_chunks(text.stream, file), str(file), skip_empty, cuts, use)


def holds_json(file: Opened, path: Path, field: str | None, json: bool | None) -> bool:
    """Whether each object of a file is a document. A file without a byte is one document, empty, like any other.

    Errors: `DataError` for one that looks so although nobody said so.
    """
    remedy = "Set data.field to the field that holds the text"
    found = is_json(file.stream, path, json, fields=field is not None, remedy=remedy)
    return found and file.stream.peek(1) not in (b"", MARK)


def topics(cuts: Cuts = ANYWHERE) -> Iterator[DocumentPiece]:
    """The topics of Python's documentation, which ship with it: one document each, sorted by name."""
    from pydoc_data.topics import topics as texts

    for name in sorted(texts):
        yield from document([texts[name]], f"{TOPICS}:{name}", True, cuts)


def document(
    texts: Iterable[str], place: str, skip_empty: bool, cuts: Cuts, use: str = LEARN
) -> Iterator[DocumentPiece]:
    """Cut one document into pieces. Errors: `DataError` for one of white space only, unless those are skipped."""
    rest = cut(texts, place, cuts)
    begin = list(beginning(rest, place))
    if begin[-1].text.strip():
        yield from begin
        yield from rest
    elif skip_empty:
        yield DocumentPiece("", False, place)
    else:
        raise DataError(
            f"{place}: the text is empty, so there is nothing to {use}. Give another text; if it is one "
            "document of many, set data.skip_empty = true to skip and count empty ones."
        )


def beginning(found: Iterator[DocumentPiece], place: str) -> Iterator[DocumentPiece]:
    """The pieces up to the first that is more than white space. Errors: `DataError` if that comes late."""
    n = 0
    for piece in found:
        yield piece
        n += len(piece.text)
        if piece.text.strip():
            return
        if n > LONGEST_RUN:
            raise DataError(
                f"{place}: the text begins with more than {LONGEST_RUN:,} characters of white space. Remove them."
            )


def cut(texts: Iterable[str], place: str, cuts: Cuts) -> Iterator[DocumentPiece]:
    """Turn chunks of text into pieces, which end where no token crosses."""
    rest = ""
    for text in texts:
        for first in range(0, len(text), PIECE):
            if len(rest) >= PIECE and (at := last_place(rest, cuts) or (len(rest) if cuts.anywhere else 0)):
                yield DocumentPiece(rest[:at], False, place)
                rest = rest[at:]
            if len(rest) > LONGEST_RUN:
                raise DataError(
                    f"{place}: this tokenizer needs words with white space between them, but {len(rest):,} characters "
                    f"from {rest[:20]!r} on have no end of a word. Give text with words, or set tokenizer.kind to "
                    "'character' or 'byte'."
                )
            rest += text[first : first + PIECE]
    yield DocumentPiece(rest, True, place)


def json_texts(file: Opened, path: Path, field: str) -> Iterator[tuple[str, str]]:
    """(place, text) for each object of a JSON file; a blank line and null are empty texts.

    Errors: `DataError` naming an object without the field, or with another value than a text.
    """
    remedy = "Set data.field to the field that holds the text."
    for _, place, fields in records_of(file, path):
        text = "" if fields is None else value_in(fields, field, place, remedy)
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise DataError(
                f"{place}: the field {field!r} must be text; got {str(text)[:60]}. Set data.field to another field."
            )
        if "\0" in checked(text, field, place):
            raise DataError(f"{place}: the field {field!r} holds NUL, which is not text. Remove it.")
        yield place, text.replace("\r\n", "\n")


# The parts of running text: what is trained on, what is held out, and how large each is.

END = b"\0"
"""Marks the end of a document when text is hashed; no text contains it."""


@dataclass(frozen=True)
class Corpus:
    """A whole text with its measurements, from one reading of it."""

    path: str | None
    field: str | None
    json: bool | None
    skip_empty: bool
    sha256: str
    """SHA-256 of its documents in UTF-8."""
    ends: NDArray[np.int64]
    """Characters up to the end of each document."""
    skips: NDArray[np.int64]
    """Characters before each empty document that was skipped."""
    stamps: tuple[Stamp, ...]

    @property
    def name(self) -> str:
        """What messages call it."""
        return TOPICS if self.path is None else self.path

    def part(self, first: int = 0, last: int | None = None) -> Part:
        """The part between these characters; by default the whole text."""
        return Part(self, first, int(self.ends[-1]) if last is None else last)


@dataclass(frozen=True)
class Part:
    """A stretch of a text, which one split reads."""

    corpus: Corpus
    first: int
    """Characters before it."""
    last: int
    """Characters up to its end."""

    @property
    def n_characters(self) -> int:
        """Its size in characters."""
        return self.last - self.first

    @property
    def n_documents(self) -> int:
        """Documents that have at least one character in it."""
        first, last = np.searchsorted(self.corpus.ends, [self.first + 1, self.last])
        return int(last - first) + 1

    @property
    def n_skipped(self) -> int:
        """Empty documents that were skipped in it. One at the border of two parts counts for the second only."""
        after = "right" if self.last == self.corpus.ends[-1] else "left"
        first = np.searchsorted(self.corpus.skips, self.first)
        return int(np.searchsorted(self.corpus.skips, self.last, after) - first)

    def pieces(self, cuts: Cuts = WORDS) -> Iterator[DocumentPiece]:
        """Its text, piece by piece; a document ends where it really ends, or with the part.

        Errors: `DataError` from reading, and for a text that has changed since it was measured.
        """
        corpus = self.corpus
        self._refuse_changed()
        at = 0
        for piece in pieces(corpus.path, corpus.field, json=corpus.json, skip_empty=corpus.skip_empty, cuts=cuts):
            text = piece.text[max(0, self.first - at) : max(0, self.last - at)]
            at += len(piece.text)
            if text:
                yield DocumentPiece(text, piece.ends or at >= self.last, piece.place)
            if at >= self.last:
                break
        self._refuse_changed()
        if at < self.last:
            raise changed_while_read(corpus.name)

    def texts(self, cuts: Cuts = WORDS) -> Iterator[str]:
        """Its text in shares, for a single pass such as the training of a tokenizer."""
        return (share for piece in self.pieces(cuts) for share in shares(piece.text, cuts))

    def _refuse_changed(self) -> None:
        now = stamps(self.corpus.path)
        if now != self.corpus.stamps:
            differing = sorted({each.path for each in {*now} ^ {*self.corpus.stamps}})
            raise changed_while_read(differing[0])


def measure(
    path: str | None,
    field: str | None = None,
    *,
    json: bool | None = None,
    skip_empty: bool = False,
    use: str = LEARN,
) -> Corpus:
    """Read a text once, to find its size, its documents and its hash; `use` is as for `pieces`.

    Errors: `DataError`, as reading raises it.
    """
    before = stamps(path)
    digest, ends, skips, length = hashlib.sha256(), array("q"), array("q"), 0
    for piece in pieces(path, field, json=json, skip_empty=skip_empty, cuts=ANYWHERE, use=use):
        digest.update(piece.text.encode("utf-8"))
        length += len(piece.text)
        if piece.ends:
            digest.update(END)
            ends.append(length)
        elif not piece.text:
            skips.append(length)
    if before != stamps(path):
        raise changed_while_read(TOPICS if path is None else path)
    if not ends:
        raise DataError(f"{path}: every document is empty, so nothing is left to read. Give other text.")
    return Corpus(path, field, json, skip_empty, digest.hexdigest(), np.array(ends), np.array(skips, np.int64), before)


def read_parts(config: DataConfig, splits: Sequence[str] = SPLITS) -> dict[str, Part]:
    """The parts of those of these splits that exist: test only if it is named.

    Errors: `DataError` from reading, and for a text too short to hold anything out; `ConfigError` for a field where no
    file is .jsonl.
    """
    found: dict[str, Part] = {}
    named = {split: config.text_file(split) for split in SPLITS}
    files = [file for path in named.values() if path is not None for file in text_files(path)]
    if config.field is not None and not any(_is_json(file, config) for file in files):
        raise ConfigError(
            f"data.field={config.field!r} names a field of JSON objects, but no text is a file of them. Remove "
            "data.field, or give a file with one object on each line (.jsonl, .ndjson, also .gz)."
        )
    how: Any = {"field": config.field, "json": config.json, "skip_empty": config.skip_empty}
    for split in [each for each in splits if named[each] is not None]:
        use = LEARN if split == "train" else SCORE
        found[split] = measure(named[split], **how, use=use).part()
    if named["dev"] is None and {"train", "dev"} & {*splits}:
        whole = found["train"].corpus if "train" in found else measure(named["train"], **how)
        at = held_out_from(whole, config.dev_share)
        found |= {"train": whole.part(0, at), "dev": whole.part(at)}
    elif named["train"] is None and "train" in splits:
        found["train"] = measure(None).part()
    return {split: found[split] for split in splits if split in found}


def _is_json(path: Path, config: DataConfig) -> bool:
    with opened(path) as file:
        return holds_json(file, path, config.field, config.json)


def held_out_from(corpus: Corpus, share: float) -> int:
    """Characters of a text before its dev part. Errors: `DataError` if one of the two would be empty."""
    total = int(corpus.ends[-1])
    at = int(total * (1 - share))
    edges = corpus.ends[:-1]
    if len(edges):
        nearest = int(edges[np.abs(edges - at).argmin()])
        if abs(nearest - at) <= (total - at) / 2:
            at = nearest
    if not 0 < at < total:
        raise DataError(
            f"{corpus.name}: data.dev_share={share} of {total:,} characters leaves nothing to train on or nothing to "
            "hold out. Give a longer text, or set data.dev_text to a dev text."
        )
    return at


def has_documents(config: DataConfig, train: Part) -> bool:
    """Whether documents are put between <bos> and <eos>: as set, or else if the training text has more than one.

    Errors: `ConfigError` for a document mask over a text that is a single document.
    """
    if config.documents is not None:
        return config.documents
    several = len(train.corpus.ends) > 1
    if config.document_mask and not several:
        raise ConfigError(
            f"data.document_mask keeps attention inside each document, but {train.corpus.name} is one document. Give a "
            "folder or a .jsonl file, set data.documents=True, or remove data.document_mask."
        )
    return several


RUN_OF_WORDS, CHARACTERS = 13, 50
LONG_WORDS = 20
"""Characters per word; if there are more, white space does not separate words."""
MOST = 2**20
"""Most windows of the held-out text to look for, evenly spread; more would fill memory."""
ODD = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


class Overlap(NamedTuple):
    """The number of windows of a held-out text, and of those among them that occur in the training text."""

    unit: str
    """"words" or "characters"."""
    size: int
    """How many words or characters a window has."""
    n: int
    """Windows that were looked for, at least 1."""
    found: int

    @property
    def share(self) -> float:
        """The share of windows that were found, 0 to 1."""
        return self.found / self.n


def overlap(train: Part, held_out: Part) -> Overlap:
    """Look for windows of the held-out text in the training text; none crosses from one document to the next.

    They are compared by hashes of 64 bits. Errors: `DataError` from reading.
    """
    n_words = sum(len(text.split()) for text in held_out.texts(ANYWHERE))
    unit = "words" if n_words * LONG_WORDS >= held_out.n_characters else "characters"
    size, most = (RUN_OF_WORDS, n_words) if unit == "words" else (CHARACTERS, held_out.n_characters)
    step = -(-most // MOST)
    requested: list[Hashes] = []
    n = 0
    for each in hashes(held_out, unit, size):
        requested.append(each[-n % step :: step].copy())
        n += len(each)
    windows, counts = np.unique(np.concatenate(requested), return_counts=True)
    seen = np.zeros(len(windows), np.bool_)
    for each in hashes(train, unit, size):
        places = np.searchsorted(windows, each).clip(max=len(windows) - 1)
        seen[places[windows[places] == each]] = True
    return Overlap(unit, size, int(counts.sum()), int(counts[seen].sum()))


def hashes(part: Part, unit: str, size: int) -> Iterator[Hashes]:
    """A hash for each window of a text, piece by piece; the next piece's first windows start at the end of this one."""
    before, shorter = np.zeros(0, np.uint64), True
    for piece in part.pieces(ANYWHERE):
        here = word_hashes(piece.text) if unit == "words" else character_hashes(piece.text)
        values = np.concatenate([before, here])
        shorter = shorter and len(values) < size
        yield rolled(values, max(1, len(values)) if shorter and piece.ends else size)
        before, shorter = (values[:0], True) if piece.ends else (values[max(0, len(values) - size + 1) :], shorter)


def word_hashes(text: str) -> Hashes:
    """A number for each word, the same within this process."""
    return np.fromiter(map(hash, text.split()), np.int64).view(np.uint64)


def character_hashes(text: str) -> Hashes:
    """A number for each character."""
    mixed = codes_of(text).astype(np.uint64) * ODD
    return (mixed ^ (mixed >> np.uint64(29))) * ODD


def rolled(values: Hashes, size: int) -> Hashes:
    """A hash for each window of `size` values that depends on their order: a polynomial modulo 2^64."""
    count = max(0, len(values) - size + 1)
    total = np.zeros(count, np.uint64)
    for place in range(size):
        total = total * ODD + values[place : place + count]
    return total ^ (total >> np.uint64(32))
