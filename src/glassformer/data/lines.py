"""Read UTF-8 text files, plain or gzip, and streams: by lines or in chunks, within limits of memory.

Lines end with LF or CRLF and with nothing else, so that parallel files cannot get out of step at unusual white space
such as U+2028. A byte order mark at the start of a file is removed.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from glassformer.base.errors import DataError

LONGEST_LINE = 2**24
"""Bytes: 16 MiB, a book. A device such as /dev/zero is one endless line."""
MOST_UNSEEN = 2**32
"""Most bytes from a source that does not say how much it holds (a pipe, a device, a gzip file): 4 GiB."""
OF_A_LINE = 64
"""Bytes that a line takes in memory besides its text; they count, too, or a stream of short lines has no limit."""
MARK = b"\xef\xbb\xbf"
ADDRESS = re.compile(r"(?:^|/)(https?):/{1,2}([^/].*)")
HEAD, CHUNK = 2**16, 2**20
"""Bytes that are looked at to tell what a file is, and that are read at once."""
GZIP = b"\x1f\x8b"  # how every gzip file begins, whatever its name
TO_LINES = (
    "python -c 'import sys, pandas; pandas.read_{0}(sys.argv[1]).to_json(sys.argv[2], orient=\"records\", lines=True)' "
    "OLD NEW.jsonl"
)
NO_TEXT = {
    b"\xff\xfe": ("text in UTF-16", "Convert it: iconv -f utf-16 -t utf-8 OLD > NEW"),
    b"\xfe\xff": ("text in UTF-16", "Convert it: iconv -f utf-16 -t utf-8 OLD > NEW"),
    b"PK\x03\x04": ("a zip archive or an office document", "Give the files in it: unzip, or save it as text"),
    b"BZh": ("a bzip2 file", "Unpack it: bunzip2 -k"),
    b"\xfd7zXZ\0": ("an xz file", "Unpack it: unxz -k"),
    b"\x28\xb5\x2f\xfd": ("a zstandard file", "Unpack it: zstd -d"),
    b"PAR1": ("a parquet file", f"Convert it: {TO_LINES.format('parquet')}"),
    b"ARROW1": ("an Arrow file", f"Convert it: {TO_LINES.format('feather')}"),
    b"%PDF-": ("a PDF document", "Convert it: pdftotext"),
}
"""How files begin that are often given for text, whatever their names; what they are, and what to do."""


@runtime_checkable
class HasLines(Protocol):
    """Anything that lines can be read from."""

    def readline(self, size: int = -1, /) -> bytes:
        """The next line with its end, or its first `size` bytes; b"" after the last line."""
        ...


class Again(io.RawIOBase):
    """A file whose first bytes were read to detect its type, and are returned again: a pipe cannot go back."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        super().__init__()
        self.head, self.file = head, file

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fill a buffer, first from the head. Returns the number of bytes."""
        piece = self.head or self.file.read(len(buffer))
        self.head = piece[len(buffer) :]
        buffer[: len(piece)] = piece[: len(buffer)]
        return min(len(piece), len(buffer))


class Opened(NamedTuple):
    """A text file that is open for its bytes, unpacked."""

    stream: io.BufferedReader[Any]
    limit: float
    """Most bytes that may be kept of it; infinite for a plain file, whose size anyone can see."""


@contextmanager
def opened(path: str | Path) -> Generator[Opened, None, None]:
    """Open a text file, a pipe or a device; a gzip file is unpacked, whatever its name.

    Errors: `DataError` for a file that cannot be read, also later in the block, a damaged one, and one of `NO_TEXT`.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
            packed = head.startswith(GZIP)
            seen = stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not packed
            whole = io.BufferedReader(Again(head, file), HEAD)
            raw = gzip.GzipFile(fileobj=whole) if packed else None
            stream: io.BufferedReader[Any] = whole if raw is None else io.BufferedReader(raw, HEAD)
            for start, (what, remedy) in NO_TEXT.items():
                if stream.peek(8).startswith(start):
                    raise DataError(f"{path}: text must be UTF-8, plain or gzip, but this is {what}. {remedy}.")
            yield Opened(stream, math.inf if seen else MOST_UNSEEN)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}). Download or compress it again.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}). Give a readable text file.") from None


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a UTF-8 text file, plain or gzip. DataError naming file, line and byte of what is not text."""
    with opened(path) as file:
        return list(lines_of(file, path))


def lines_of(file: Opened, path: str | Path) -> Iterator[str]:
    """Yield the lines of an open file. Errors: `DataError` as `read_lines`, also for a file that is empty."""
    number, room = 0, file.limit
    for number, line in enumerate(bounded_lines(file.stream, f"{path}:"), start=1):
        room -= len(line) + OF_A_LINE
        if room < 0:
            raise DataError(
                f"{path}: a pipe, a device or a gzip file may have at most {MOST_UNSEEN:,} bytes (counting {OF_A_LINE} "
                f"more for each line), but this one has more, after line {number - 1:,}. If it has an end, write it to "
                "a plain file and give that."
            )
        yield decoded(line, f"{path}:{number}")
    if number == 0:
        raise DataError(f"{path}: the file is empty. Give a file with at least one line.")


def no_such_file(path: str | Path) -> DataError:
    """The error for a file that does not exist."""
    if (address := ADDRESS.search(str(path))) is not None:  # a path has one slash where an address has two
        url = f"{address[1]}://{address[2]}"
        return DataError(f"A text is read from a file; {url} is an address. Download it first: curl -LO {url}")
    return DataError(f"{path}: there is no such file. Check the path; relative paths start at {Path.cwd()}.")


def bounded_lines(file: HasLines, where: str) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; `where` and a line's number tell its place in an error.

    Errors: `DataError` for a line longer than any text.
    """
    number = 0
    while line := file.readline(LONGEST_LINE + 2):
        number += 1
        if number == 1:
            line = line.removeprefix(MARK)
            if not line:  # a file with nothing but the mark has no line
                return
        bare = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(bare) > LONGEST_LINE:
            _refuse_nul(bare, f"{where}{number}")
            raise DataError(
                f"{where}{number}: a line may have at most {LONGEST_LINE:,} bytes, but this one is longer. Give a text "
                "file with shorter lines."
            )
        yield bare


def decoded(line: bytes, place: str) -> str:
    """Decode a line; `place` says where it is. DataError for a NUL, and for invalid UTF-8, naming the byte."""
    return _text_of(line, place, of=" of the line")


def decoded_chunks(stream: io.BufferedReader[Any], path: str | Path) -> Iterator[str]:
    """Decode a file, chunk by chunk. Errors: `DataError` naming the byte that is not text."""
    rest, offset = b"", 0
    while True:
        chunk = stream.read(CHUNK)
        if offset == 0 and not rest:
            whole = chunk.removeprefix(MARK)
            offset = len(chunk) - len(whole)
        else:
            whole = rest + chunk
        ready = whole[: whole_characters(whole)] if chunk else whole
        text = _text_of(ready, path, offset)
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


def _text_of(data: bytes, place: str | Path, offset: int = 0, of: str = "") -> str:
    """Decode bytes; `offset` are before them in the file, or in the line that an error names as what they are `of`."""
    _refuse_nul(data, place, offset, of)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: byte {offset + error.start + 1:,}{of} (0x{data[error.start]:02x}) is not valid UTF-8. Convert "
            "the whole text to UTF-8 first, for instance: iconv -f latin1 -t utf-8."
        ) from None


def _refuse_nul(data: bytes, place: str | Path, offset: int = 0, of: str = " of the line") -> None:
    byte = data.find(b"\0")
    if byte >= 0:
        raise DataError(
            f"{place}: byte {offset + byte + 1:,}{of} is NUL, which is not text. The file is binary or UTF-16; save it "
            "as UTF-8 text, or give another one."
        )
