r"""Read running text of any size in pieces that fit in memory: from files, folders, or what ships with Python.

A text file is one document, each object of a JSON file is one, and the files of a folder follow each other.
UTF-8; a byte order mark at the start of a file is removed and "\r\n" becomes "\n"; nothing else is changed.

A document longer than a piece is cut where no token crosses (`data/tokens/cuts.py`), so the parts give its tokens.

A text is read more than once (to measure it, to train a tokenizer, to make its tokens), so it must be a file that can
be read again, with the same content each time.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.data import lines
from glassformer.data.lines import (
    CHUNK,
    MARK,
    Opened,
    checked,
    decoded_chunks,
    is_json,
    no_such_file,
    records_of,
    value_in,
)
from glassformer.data.tokens.vocabulary import ANYWHERE, WORDS, Cuts, last_place


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
