"""The process that runs a learner's file for `checking.py`: judges exercise after exercise, a line of JSON for each.

An exercise is done if every part that it names exists, is the learner's own work, and none of its properties fails.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import DataError
from glassformer.learn.course import Course, Exercise, read_course
from glassformer.learn.report import Verdict, absent, not_own
from glassformer.learn.source import Source, read_source
from glassformer.proof.check.examine import SUBJECTS, check_part, load, stub
from glassformer.proof.check.file import DOCUMENTED, HOME, Documented
from glassformer.proof.check.property import Piece, Subject


def judge(
    course: Course,
    exercise: Exercise,
    things: Mapping[str, object],
    source: Source | None,
    examined: dict[str, Piece] | None = None,
) -> Verdict:
    """Return what is true of an exercise, given the names that the learner's code binds, and its text if there is one.

    `examined` keeps what was found of each name, for the further exercises on the same one: it is examined once. Never
    raises for what the learner's code does.
    """
    examined = {} if examined is None else examined
    pieces: list[Piece] = []
    for name in exercise.names:
        if name not in things:
            return absent(exercise, name, [*things])
        subject = subject_of(course, exercise, name)
        if subject is None and stub(things[name]):
            return Verdict(exercise.id, "not written", f"{name} is still a stub")
        if subject is None:
            return Verdict(exercise.id, "waits", f"this version cannot check {name} yet")
        known = [each.name for each in SUBJECTS[subject].properties]
        chosen = [each for each in exercise.properties if each in known]
        if exercise.properties and not chosen:
            continue
        if name not in examined:
            examined[name] = check_part(subject, things[name], found_as=name)
        whole = examined[name]
        requested = [each for each in whole.properties if not chosen or each.property in chosen]
        pieces.append(replace(whole, properties=requested))
    return Verdict.of(exercise, pieces) if source is None else not_own(Verdict.of(exercise, pieces), exercise, source)


def subject_of(course: Course, exercise: Exercise, name: str) -> str | None:
    """Return the subject of a name; one from a file of the course is registered first. Errors: `DataError`."""
    if not exercise.subject:
        return HOME.get(name)
    if name not in SUBJECTS:
        file, _, constant = exercise.subject.partition(":")
        SUBJECTS[name] = foreign(course, file, constant)
        DOCUMENTED[name] = Documented(exercise.statement.strip().splitlines()[0], exercise.statement)
    return name


def foreign(course: Course, file: str, constant: str) -> Subject:
    """Return a subject that a teacher wrote. Errors: `DataError` if there is none."""
    path = course.folder / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise DataError(f"{course.folder / 'course.toml'}: the subject {file}:{constant} needs {path}.")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, constant, None)
    if not isinstance(found, Subject):
        raise DataError(f"{path} defines no Subject called {constant}.")
    return found


def work(path: Path, folder: Path, numbers: Sequence[str], out: Path, limit: float) -> None:
    """Judge the exercises `numbers` of a course for a learner's file; write into `out`: verdicts.jsonl, stack.txt."""
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True  # a file beside may be saved twice in the second by which its bytecode is kept
    sys.path.append(str(path.parent))  # for imports of modules in the same folder
    course = read_course(folder)
    with (out / "stack.txt").open("w") as stack, (out / "verdicts.jsonl").open("w", encoding="utf-8") as lines:
        faulthandler.dump_traceback_later(limit, exit=True, file=stack)

        def put(row: dict[str, Any]) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        try:
            things = vars(load(path))
        except DataError as error:
            put({"problem": str(error)})
            return
        source, examined = read_source(path), dict[str, Piece]()
        for number in numbers:
            torch.manual_seed(0)
            put({"begun": number})
            put(judge(course, course.exercise(number), things, source, examined).as_json())
        faulthandler.cancel_dump_traceback_later()
        put({"end": True})


def main(words: Sequence[str]) -> None:
    """Do the work. The words are: file, folder of the course, numbers with commas, output folder, seconds."""
    path, folder, numbers, out, limit = words
    work(Path(path), Path(folder), numbers.split(","), Path(out), float(limit))


if __name__ == "__main__":
    main(sys.argv[1:])
