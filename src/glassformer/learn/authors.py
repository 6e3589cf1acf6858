"""For authors of a course: whether it is sound. Our own course is held to the same."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from glassformer.learn.checking import Checked, Checker, Run, warmed
from glassformer.learn.course import Course, assembled
from glassformer.learn.pages import as_notebook


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
        if told := [line for line in lines if any(line in hint for hint in each.hints)]:
            yield f"{each.id}: a hint contains a whole line of the solution: {told[0]}"
    say("solutions")
    for number, verdict in checked(course, course.solution_file(), run).verdicts.items():
        if not verdict.done and course.exercise(number).names:
            yield f"{number}: the solution is not done, but {verdict.state}: {verdict.why}"
    say("stubs")
    for number, verdict in checked(course, course.head + assembled([*course.stubs.values()]), run).verdicts.items():
        if verdict.state not in ("not written", "waits"):
            yield f"{number}: the stub is not 'not written', but {verdict.state}: {verdict.why}"
    for each in mistakes(course):
        say(f"mistake {each['name']!r}")
        yield from unnamed(course, each, run)
    for chapter in course.chapters:
        if chapter.page:
            as_notebook(course.text_of(chapter.page))
    if course.further is not None:
        yield from complaints(course.further, say)


def checked(course: Course, text: str, run: Run) -> Checked:
    """Check all exercises of a text as if it were a learner's file."""
    with tempfile.TemporaryDirectory(prefix="glassformer-course-") as name:
        return Checker(course, course.write(Path(name), text), run=run).check(course.exercises)


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
    found = checked(course, whole.replace(text, instead), run)
    verdict = found.verdicts.get(number)
    names = {each.mistake for _, each in verdict.outcomes if each.state == "fails"} if verdict else {found.problem}
    if names != {name}:
        yield f"{number}: the mistake {name!r} is named {sorted(names) or 'not at all'}"
