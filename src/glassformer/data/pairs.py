"""Pairs of texts from files: two parallel files, or one with TABs; plain or gzip. Nothing is dropped in silence.

Lines end with LF or CRLF and with nothing else, so that the two sides cannot drift apart at an odd white space such
as U+2028. A byte order mark at the head of a file is taken off. All text is UTF-8.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from glassformer.foundation.errors import DataError


class Pair(NamedTuple):
    """A source text and the target text that belongs to it."""

    source: str
    target: str


@dataclass(frozen=True)
class Origin:
    """Where pairs stand: the files of source and target (one and the same for a TSV), and the line of each pair."""

    paths: tuple[str | Path, str | Path]
    lines: Sequence[int]

    def place(self, row: int, side: str) -> str:
        """FILE:LINE of one side ("source" or "target") of the pair number `row`, counted from 0."""
        return f"{self.paths[Pair._fields.index(side)]}:{self.lines[row]}"


@dataclass(frozen=True)
class Loaded:
    """The pairs, and how many were left out because a side was empty."""

    pairs: list[Pair]
    skipped: int
    origin: Origin | None = field(default=None, compare=False)
    """None of pairs that a task has made."""


def read_parallel(source_path: str | Path, target_path: str | Path, skip_empty: bool = False) -> Loaded:
    """Line i of one file with line i of the other. DataError for unequal line counts and for an empty line."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        raise DataError(
            f"Parallel files have one line for each other's line, but {source_path} has {len(sources)} lines and "
            f"{target_path} has {len(targets)}. Align them again; a lost or doubled line shifts all that follow."
        )
    return _without_empty(zip(sources, targets, strict=True), (source_path, target_path), skip_empty)


def read_tsv(path: str | Path, skip_empty: bool = False) -> Loaded:
    """Lines of source, TAB, target. DataError for a line without exactly one TAB and for an empty side."""
    rows: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t") if line.strip() else ["", ""]
        if len(cells) != 2:
            raise DataError(
                f"{path}:{number}: a line is source, TAB, target, so it has exactly one TAB, but this one has "
                f"{len(cells) - 1}: {line[:60]!r}. Separate the two sides by one TAB and take out any other."
            )
        rows.append((cells[0], cells[1]))
    return _without_empty(rows, (path, path), skip_empty)


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file, plain or gzip. DataError naming file, line and byte of what is no text."""
    lines = _read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()  # what stands behind the last line end is no line
    if not lines:
        raise DataError(f"{path}: the file is empty. Give a file with at least one line.")
    return [_decode(line.removesuffix(b"\r"), path, number) for number, line in enumerate(lines, start=1)]


def _read_bytes(path: str | Path) -> bytes:
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check the path; it counts from {Path.cwd()}.") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}). Give a readable text file.") from None
    if not content.startswith(b"\x1f\x8b"):  # how every gzip file begins, whatever its name
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}). Fetch or compress it again.") from None


def _decode(line: bytes, path: str | Path, number: int) -> str:
    place = line.find(b"\0")
    if place >= 0:
        raise DataError(
            f"{path}:{number}: byte {place + 1} of the line is NUL, which text never holds. "
            f"The file is binary or UTF-16; save it as UTF-8 text."
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not valid UTF-8. "
            f"Save the file as UTF-8, for instance: iconv -f latin1 -t utf-8 FILE."
        ) from None


def _without_empty(rows: Iterable[tuple[str, str]], paths: tuple[str | Path, str | Path], skip_empty: bool) -> Loaded:
    pairs: list[Pair] = []
    lines = array("q")
    skipped = 0
    for number, row in enumerate(rows, start=1):
        empty = [(path, side) for path, side, text in zip(paths, Pair._fields, row, strict=True) if not text.strip()]
        if empty and not skip_empty:
            path, side = empty[0]
            raise DataError(
                f"{path}:{number}: the {side} side is empty, and a pair needs both sides. "
                f"Mend the line, or set data.skip_empty = true to leave such pairs out and count them."
            )
        if empty:
            skipped += 1
        else:
            pairs.append(Pair(*row))
            lines.append(number)
    if not pairs:
        raise DataError(f"{paths[0]}: every pair has an empty side, so nothing is left to read. Give other files.")
    return Loaded(pairs, skipped, Origin(paths, lines))
