"""The learner's folder: the file that grows, its stubs and backups, and what cannot be computed of the progress.

What is done follows from the file at each check. progress.json holds attempts, hints seen and minutes alone; losing it
loses nothing that was built. Imports no torch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from glassformer.base.errors import DataError, GlassformerError
from glassformer.learn.course import Course, Exercise
from glassformer.learn.source import append, definition, read_source, replace, source_of
from glassformer.store.files import read_json, write_text_atomically

HIDDEN = ".learn"


@dataclass
class Trail:
    """What is remembered of one exercise."""

    attempts: int = 0
    hints: int = 0
    solution: bool = False
    skipped: bool = False
    minutes: float = 0.0
    done: str = ""
    """When it was first seen done."""


@dataclass(frozen=True)
class Workspace:
    """A course and the folder in which somebody works on it."""

    course: Course
    folder: Path

    @property
    def path(self) -> Path:
        """The learner's file."""
        return self.folder / self.course.file

    @property
    def with_further(self) -> list[Workspace]:
        """The folder with this course, and with its further pages if they were begun here."""
        further = Workspace(self.course.further, self.folder) if self.course.further else None
        return [self, further] if further and further.path.is_file() else [self]

    @property
    def files(self) -> list[Path]:
        """The learner's files that a verdict may depend on: the one above and, for further pages, the first."""
        before = self.course.before
        return [self.path] if before is None else [self.path, self.folder / before.file]

    @property
    def backups(self) -> Path:
        """Where old copies of the file are kept."""
        return self.folder / HIDDEN / "backup"

    @property
    def progress(self) -> Path:
        """The file with attempts, hints and minutes."""
        return self.folder / HIDDEN / "progress.json"

    @property
    def begun(self) -> bool:
        """Whether the course was begun here."""
        return (self.folder / HIDDEN).is_dir() or self.path.is_file()

    def unopened(self, chapter: str) -> bool:
        """Whether a chapter has a notebook that is not here yet."""
        return bool(self.course.chapter(chapter).page) and not (self.folder / f"chapter-{chapter}.ipynb").exists()

    def add_stubs(self, chapter: str) -> list[str]:
        """Append the stubs of a chapter whose names the file does not bind yet. Returns those names.

        Nothing that is there is touched. Errors: `DataError`, and nothing is written, if Python cannot read the file.
        """
        source = read_source(self.path)
        bound = set(source.names)
        added: list[str] = []
        parts: list[str] = []
        used: list[str] = []
        for exercise in self.course.within(chapter):
            stub = self.course.stubs.get(exercise.id, "")
            missing = [name for name in exercise.names if name not in bound]
            if stub and missing and not self.lacking(exercise):
                parts.append(f"# {exercise.label}\n" + "\n\n".join(definition(stub, name) for name in missing))
                added += missing
                bound |= {*missing}
                used += [name for name in exercise.uses if name not in source.names]
        if parts:
            head = self.course.head if not source.data else imports(self.course.head, source.names)
            head += self.course.import_of(used)
            append(self.path, self.backups, head + "".join(f"\n\n{part}" for part in parts))
        return added

    def lacking(self, exercise: Exercise) -> list[str]:
        """Return the names that an exercise uses of the file of the course before, and that this file lacks."""
        if self.course.before is None or not exercise.uses:
            return []
        names = read_source(self.folder / self.course.before.file).names
        return [name for name in exercise.uses if name not in names]

    def reset(self, exercise: Exercise) -> list[str]:
        """Put the stubs of an exercise in the place of what the file has. Returns the names; the old file is kept."""
        stub = self.course.stubs.get(exercise.id, "")
        for name in exercise.names:
            replace(read_source(self.path), self.backups, name, definition(stub, name))
        return [*exercise.names]

    def trails(self) -> tuple[dict[str, Trail], str]:
        """Return what is remembered of each exercise, and a remark if the file could not be read."""
        if not self.progress.is_file():
            return {}, ""
        try:
            rows: dict[str, Any] = read_json(self.progress)["exercises"]
            known = {each.name for each in fields(Trail)}
            return {n: Trail(**{k: v for k, v in row.items() if k in known}) for n, row in rows.items()}, ""
        except (GlassformerError, KeyError, TypeError, AttributeError):
            return (
                {},
                f"{self.progress} is damaged: attempts and minutes begin again; what is done is seen in the file.",
            )

    def note(self, number: str, **changes: Any) -> Trail:
        """Change what is remembered of one exercise, and write it. Returns it."""
        trails, _ = self.trails()
        trail = trails.setdefault(number, Trail())
        for name, value in changes.items():
            setattr(trail, name, value)
        rows = {each: asdict(row) for each, row in trails.items()}
        plain = {"format": 1, "course": self.course.title, "exercises": rows}
        write_text_atomically(self.progress, json.dumps(plain, indent=1) + "\n")
        return trail


def workspace(course: Course, into: Path | None = None) -> Workspace:
    """Return the learner's folder: `into`, the current one if a course was begun there, else ./course.

    Further pages go on beside the file that they import from.
    """
    if into is not None:
        if into.exists() and not into.is_dir():
            raise DataError(f"{into} is a file; --into must name a folder.")
        return Workspace(course, into)
    here = Workspace(course, Path())
    return here if here.begun or any(each.is_file() for each in here.files) else Workspace(course, Path("course"))


def imports(head: str, names: set[str]) -> str:
    """Return the imports of `head` whose names are not bound yet."""
    source = source_of(head)
    lines = head.splitlines()
    missing = {node.lineno for name, node in source.imported.items() if name not in names}
    return "".join(f"{lines[number - 1]}\n" for number in sorted(missing))
