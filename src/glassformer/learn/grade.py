"""Grades many files: which exercises each has done. A file that hangs or crashes is a row, never the end."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.learn.checking import Checker, Run
from glassformer.learn.course import Course
from glassformer.learn.source import read_source
from glassformer.learn.verdict import STATES


@dataclass(frozen=True)
class Grade:
    """One row: the file, the state of each exercise, the first mistake, and how long it took."""

    file: str
    states: dict[str, str]
    first: str
    seconds: float

    @property
    def ran(self) -> bool:
        """Whether the file could be run."""
        return any(state != STATES["stopped"] for state in self.states.values())


def grades(course: Course, files: Sequence[Path], limit: float, run: Run) -> Iterator[Grade]:
    """Yield a row for each file, in order; as many at a time as there are processors.

    A file of further pages is known by its name, or by what it defines, and graded by their exercises.
    """

    def one(path: Path) -> Grade:
        own = course_of(course, path)
        exercises = [each for each in own.exercises if not each.experiment]
        found = Checker(own, path.absolute(), limit, run).check(exercises)
        states = {
            each.id: STATES[found.verdicts[each.id].state if each.id in found.verdicts else "stopped"]
            for each in exercises
        }
        wrong = next((each for each in found.verdicts.values() if each.state in ("fails", "stopped", "not own")), None)
        first = found.problem or (f"{wrong.exercise}: {wrong.why}" if wrong else "")
        return Grade(str(path), states, first, round(found.seconds, 1))

    with ThreadPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
        yield from pool.map(one, files)


def course_of(course: Course, path: Path) -> Course:
    """Return the course that a file belongs to: the one given, or its further pages."""
    defined: list[str] = []
    with suppress(DataError):  # a file that cannot be read is a row of the first course
        source = read_source(path)
        defined = [name for name in source.definitions if name not in source.imported]
    return course.of_file(path.name, defined)


def as_csv(rows: Sequence[Grade]) -> str:
    """Return the rows as comma-separated values, with a header; what is no exercise of a file's course stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [*dict.fromkeys(number for row in rows for number in row.states)]
    writer.writerow(["file", *numbers, "done", "first mistake", "seconds"])
    for row in rows:
        done = sum(state == STATES["done"] for state in row.states.values())
        writer.writerow([row.file, *(row.states.get(number, "") for number in numbers), done, row.first, row.seconds])
    return text.getvalue()
