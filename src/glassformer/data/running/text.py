r"""Read running text of any size in pieces that fit in memory: from files, folders, or what ships with Python.

A text file is one document, each line of a .jsonl or .ndjson file is one, and the files of a folder follow each other.
UTF-8; a byte order mark at the start of a file is removed and "\r\n" becomes "\n"; nothing else is changed.

A document longer than a piece is cut where no token crosses (`data/tokens/cuts.py`), so the parts give its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.base.registry import suggestion
from glassformer.data.labelled import object_in
from glassformer.data.lines import MARK, bounded_lines, decoded, in_json
from glassformer.data.running.text_files import opened, text_files
from glassformer.data.tokens.cuts import ANYWHERE, WORDS, Cuts, last_place
from glassformer.data.tokens.vocabulary import utf8

PIECE = 2**20
"""The approximate length of a piece in characters, and the number of bytes read at once."""
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
        with opened(file) as stream:
            if in_json(file):
                place = None
                for place, text in json_texts(stream, file, field or "text"):
                    yield from document([text], place, skip_empty, cuts, use)
                if place is None:  # a file without lines is refused like any other without text
                    yield from document([""], str(file), skip_empty, cuts, use)
            else:
                yield from document(decoded_chunks(stream, file), str(file), skip_empty, cuts, use)


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


def decoded_chunks(stream: BufferedReader, path: Path) -> Iterator[str]:
    """Decode a file, chunk by chunk. Errors: `DataError` naming the byte that is not text."""
    rest, offset = b"", 0
    while True:
        chunk = stream.read(PIECE)
        if offset == 0 and not rest:
            whole = chunk.removeprefix(MARK)
            offset = len(chunk) - len(whole)
        else:
            whole = rest + chunk
        ready = whole[: whole_characters(whole)] if chunk else whole
        text = text_of(ready, path, offset)
        yield text.replace("\r\n", "\n") if "\r" in text else text  # searching for one character is quicker
        rest, offset = whole[len(ready) :], offset + len(ready)
        if not chunk:
            return


def whole_characters(data: bytes) -> int:
    """How many bytes to decode now: not those of an incomplete character, nor a CR that an LF may follow."""
    end = len(data)
    for back in range(1, min(4, end) + 1):
        byte = data[end - back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            return end - back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else end
        if byte < 0x80:
            break
    return end - 1 if data.endswith(b"\r") else end


def text_of(data: bytes, path: Path, offset: int) -> str:
    """Decode bytes; `offset` is the number of bytes before them. Errors: `DataError` naming the byte."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise DataError(
            f"{path}: byte {offset + nul + 1:,} is NUL, which is not text. The file is binary or UTF-16; save it "
            "as UTF-8 text, or give another one."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: byte {offset + error.start + 1:,} (0x{data[error.start]:02x}) is not valid UTF-8. Convert the "
            "whole file to UTF-8 first, for instance: iconv -f latin1 -t utf-8."
        ) from None


def json_texts(stream: BufferedReader, path: Path, field: str) -> Iterator[tuple[str, str]]:
    """(place, text) for each line of a .jsonl file. Errors: `DataError` naming a line without the field."""
    for number, line in enumerate(bounded_lines(stream, f"{path}:"), start=1):
        place = f"{path}:{number}"
        record = object_in(decoded(line, place), place)
        if field not in record:
            raise DataError(
                f"{place}: the object has no field {field!r}. {suggestion(field, list(record)[:20])[:200]} "
                "Set data.field to the field that holds the text."
            )
        text = record[field]
        if not isinstance(text, str):
            raise DataError(
                f"{place}: the field {field!r} must be text; got {str(text)[:60]}. Set data.field to another field."
            )
        try:
            utf8(text)
        except DataError as error:  # JSON can spell half a character: "\ud83d"
            raise DataError(f"{place}: the field {field!r}: {error}") from None
        if "\0" in text:
            raise DataError(f"{place}: the field {field!r} holds NUL, which is not text. Remove it.")
        yield place, text.replace("\r\n", "\n")
