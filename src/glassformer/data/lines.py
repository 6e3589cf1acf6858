"""Read the lines of a UTF-8 text file, plain or gzip, or of a stream, with limits on the memory that they take.

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
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from glassformer.base.errors import DataError

LONGEST_LINE = 2**24
"""Bytes: 16 MiB, a book. A device such as /dev/zero is one endless line."""
MOST_UNSEEN = 2**32
"""Most bytes from a source that does not say how much it holds (a pipe, a device, a gzip file): 4 GiB."""
OF_A_LINE = 64
"""Bytes that a line takes in memory besides its text; they count, too, or a stream of short lines has no limit."""
MARK = b"\xef\xbb\xbf"
ADDRESS = re.compile(r"(?:^|/)(https?):/{1,2}([^/].*)")
GZIP = b"\x1f\x8b"  # how every gzip file begins, whatever its name


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


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a UTF-8 text file, plain or gzip. DataError naming file, line and byte of what is not text."""
    try:
        with Path(path).open("rb") as file:
            lines = _all_lines(file, str(path))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}). Download or compress it again.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}). Give a readable text file.") from None
    if not lines:
        raise DataError(f"{path}: the file is empty. Give a file with at least one line.")
    return lines


def no_such_file(path: str | Path) -> DataError:
    """The error for a file that does not exist."""
    if (address := ADDRESS.search(str(path))) is not None:  # a path has one slash where an address has two
        url = f"{address[1]}://{address[2]}"
        return DataError(f"A text is read from a file; {url} is an address. Download it first: curl -LO {url}")
    return DataError(f"{path}: there is no such file. Check the path; relative paths start at {Path.cwd()}.")


def _all_lines(file: BinaryIO, path: str) -> list[str]:
    head = file.read(len(GZIP))
    packed = head == GZIP
    seen = stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not packed
    whole = io.BufferedReader(Again(head, file), 2**20)
    lines: list[str] = []
    room = math.inf if seen else MOST_UNSEEN
    for line in bounded_lines(gzip.GzipFile(fileobj=whole) if packed else whole, f"{path}:"):
        room -= len(line) + OF_A_LINE
        if room < 0:
            raise DataError(
                f"{path}: a pipe, a device or a gzip file may have at most {MOST_UNSEEN:,} bytes (counting {OF_A_LINE} "
                f"more for each line), but this one has more, after line {len(lines):,}. If it has an end, write it to "
                "a plain file and give that."
            )
        lines.append(decoded(line, f"{path}:{len(lines) + 1}"))
    return lines


def in_json(path: str | Path) -> bool:
    """Whether each line of a file is a JSON object, by its name: .jsonl or .ndjson, also with .gz, in any case."""
    return str(path).lower().removesuffix(".gz").endswith((".jsonl", ".ndjson"))


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
    _refuse_nul(line, place)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not valid UTF-8. "
            "Convert it to UTF-8 first, for instance: iconv -f latin1 -t utf-8."
        ) from None


def _refuse_nul(line: bytes, place: str) -> None:
    byte = line.find(b"\0")
    if byte >= 0:
        raise DataError(
            f"{place}: byte {byte + 1} of the line is NUL, which is not text. "
            f"The file is binary or UTF-16; save it as UTF-8 text."
        )
