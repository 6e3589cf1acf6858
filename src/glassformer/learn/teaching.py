"""For teachers and authors: the grades of many files, and whether a course is sound. Our own is held to the same.

A file that hangs or crashes is a row, never the end.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.base.errors import DataError
from glassformer.learn.checking import Checker, Run, warmed
from glassformer.learn.course import Course, Exercise, assembled
from glassformer.learn.pages import as_notebook
from glassformer.learn.report import STATES, Checked
from glassformer.learn.source import read_source


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


# For authors of a course: whether it is sound. Our own course is held to the same.


def complaints(course: Course, say: Callable[[str], None]) -> Iterator[str]:
    """Yield what is wrong with a course: solutions that fail, stubs that pass, hints that tell, mistakes not named.

    `say` is told what is being looked at.
    """
    run = warmed()
    coded = [each for each in course.exercises if each.names]
    for each in coded:
        if each.id not in course.stubs:
            yield f"{each.id} has no solution: a section under the line `# {each.label}` with {each.names[0]}"
    for each in coded:
        lines = [line.strip() for line in course.solutions.get(each.id, "").splitlines() if len(line.strip()) > 12]
        if revealed := [line for line in lines if any(line in hint for hint in each.hints)]:
            yield f"{each.id}: a hint contains a whole line of the solution: {revealed[0]}"
    say("solutions")
    for number, verdict in checked(course, course.solution_file(), run, course.exercises).verdicts.items():
        if not verdict.done and course.exercise(number).names:
            yield f"{number}: the solution is not done, but {verdict.state}: {verdict.why}"
    say("stubs")
    stubs = course.head + assembled([*course.stubs.values()])
    for number, verdict in checked(course, stubs, run, course.exercises).verdicts.items():
        if verdict.state not in ("not written", "waits"):
            yield f"{number}: the stub is not 'not written', but {verdict.state}: {verdict.why}"
    say("exercises that go on with what is there")
    for before, each in pairwise(course.exercises):
        earlier = course.exercises[: course.exercises.index(each)]
        if each.names and {*each.names} <= {name for one in earlier for name in one.names}:
            text = course.solution_file(before.id)
            if checked(course, text, run, [each]).verdicts[each.id].done:
                yield f"{each.id} is done before it is begun: `must` should name the properties that it adds"
    for each in mistakes(course):
        say(f"mistake {each['name']!r}")
        yield from unnamed(course, each, run)
    for chapter in course.chapters:
        if chapter.page:
            as_notebook(course.text_of(chapter.page))
    if course.further is not None:
        yield from complaints(course.further, say)


def checked(course: Course, text: str, run: Run, exercises: Sequence[Exercise]) -> Checked:
    """Check exercises of a text as if it were a learner's file."""
    with tempfile.TemporaryDirectory(prefix="glassformer-course-") as name:
        return Checker(course, course.write(Path(name), text), run=run).check(exercises)


def mistakes(course: Course) -> list[dict[str, Any]]:
    """Return the planted mistakes of mistakes.toml, if the course has it: exercise, text, instead, name."""
    path = course.folder / "mistakes.toml"
    return tomllib.loads(path.read_text("utf-8")).get("mistake", []) if path.is_file() else []


def unnamed(course: Course, planted: dict[str, Any], run: Run) -> Iterator[str]:
    """Complain about a planted mistake that is not named by its name, or also by another."""
    number, text, instead, name = (str(planted.get(key, "")) for key in ("exercise", "text", "instead", "name"))
    whole = course.solution_file(number)
    if not text or text not in whole:
        yield f"{number}: mistakes.toml: the text {text!r} is not in the solution"
        return
    found = checked(course, whole.replace(text, instead), run, course.exercises)
    verdict = found.verdicts.get(number)
    names = {each.mistake for _, each in verdict.outcomes if each.state == "fails"} if verdict else {found.problem}
    if names != {name}:
        yield f"{number}: the mistake {name!r} is named {sorted(names) or 'not at all'}"
