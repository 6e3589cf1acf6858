"""Grades many files: which exercises each has done. A file that hangs or crashes is a row, never the end."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from glassformer.learn.checking import Checker, Run
from glassformer.learn.course import Course
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
    """Yield a row for each file, in order; as many at a time as there are processors."""

    def one(path: Path) -> Grade:
        exercises = [each for each in course.exercises if not each.experiment]
        found = Checker(course, path.absolute(), limit, run).check(exercises)
        states = {
            each.id: STATES[found.verdicts[each.id].state if each.id in found.verdicts else "stopped"]
            for each in exercises
        }
        wrong = next((each for each in found.verdicts.values() if each.state in ("fails", "stopped", "not own")), None)
        first = found.problem or (f"{wrong.exercise}: {wrong.why}" if wrong else "")
        return Grade(str(path), states, first, round(found.seconds, 1))

    with ThreadPoolExecutor(min(len(files), os.cpu_count() or 1)) as pool:
        yield from pool.map(one, files)


def as_csv(rows: Sequence[Grade]) -> str:
    """Return the rows as comma-separated values, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [*rows[0].states]
    writer.writerow(["file", *numbers, "done", "first mistake", "seconds"])
    for row in rows:
        done = sum(state == STATES["done"] for state in row.states.values())
        writer.writerow([row.file, *row.states.values(), done, row.first, row.seconds])
    return text.getvalue()
