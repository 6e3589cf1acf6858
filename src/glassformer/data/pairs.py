"""Read pairs of texts from files: two parallel ones, or one with TABs; plain or gzip. Nothing is silently dropped."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from glassformer.base.errors import DataError
from glassformer.data.lines import read_lines


class Pair(NamedTuple):
    """A source text and its target text."""

    source: str
    target: str


@dataclass(frozen=True)
class Origin:
    """Where pairs come from: the files of source and target (the same one for a TSV), and the line of each pair."""

    paths: tuple[str | Path, str | Path]
    lines: Sequence[int]

    def place(self, row: int, side: str) -> str:
        """FILE:LINE of one side ("source" or "target") of the pair number `row`, counted from 0."""
        return f"{self.paths[Pair._fields.index(side)]}:{self.lines[row]}"


@dataclass(frozen=True)
class Loaded:
    """The pairs, and how many were skipped because a side was empty."""

    pairs: list[Pair]
    skipped: int
    origin: Origin | None = field(default=None, compare=False)
    """None for pairs that a task has made."""


def read_parallel(source_path: str | Path, target_path: str | Path, skip_empty: bool = False) -> Loaded:
    """Pair line i of one file with line i of the other. DataError for unequal line counts and for an empty line."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        raise DataError(
            f"Parallel files must have the same number of lines, but {source_path} has {len(sources)} lines and "
            f"{target_path} has {len(targets)}. Align them again: a missing or extra line shifts all that follow."
        )
    return _without_empty(zip(sources, targets, strict=True), (source_path, target_path), skip_empty)


def read_tsv(path: str | Path, skip_empty: bool = False) -> Loaded:
    """Read lines of source, TAB, target. DataError for a line without exactly one TAB and for an empty side."""
    rows: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t") if line.strip() else ["", ""]
        if len(cells) != 2:
            raise DataError(
                f"{path}:{number}: a line must be source, TAB, target, with exactly one TAB, but this one has "
                f"{len(cells) - 1}: {line[:60]!r}. Separate the two sides by one TAB, and remove all others."
            )
        rows.append((cells[0], cells[1]))
    return _without_empty(rows, (path, path), skip_empty)


def _without_empty(rows: Iterable[tuple[str, str]], paths: tuple[str | Path, str | Path], skip_empty: bool) -> Loaded:
    pairs: list[Pair] = []
    lines = array("q")
    skipped = 0
    for number, row in enumerate(rows, start=1):
        empty = [(path, side) for path, side, text in zip(paths, Pair._fields, row, strict=True) if not text.strip()]
        if empty and not skip_empty:
            path, side = empty[0]
            raise DataError(
                f"{path}:{number}: the {side} side is empty, but a pair needs both sides. "
                f"Correct the line, or set data.skip_empty = true to skip and count such pairs."
            )
        if empty:
            skipped += 1
        else:
            pairs.append(Pair(*row))
            lines.append(number)
    if not pairs:
        raise DataError(f"{paths[0]}: every pair has an empty side, so nothing is left to read. Give other files.")
    return Loaded(pairs, skipped, Origin(paths, lines))
