"""What the course consists of: chapters, exercises and our solutions, read from a folder of plain files.

A stub is what our solution begins with: its signature and docstring. What the learner's file begins with, too.

Our own course lies beside this file; `--course FOLDER` names another. Imports no torch.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError, DataError
from glassformer.base.registry import suggestion
from glassformer.learn.source import begins

OURS = Path(__file__).parent
"""The folder of the course that comes with the package."""
FURTHER = "further"
"""The folder in a course with its further pages: a course too, whose file imports from the first one's."""
HEADING = re.compile(r"^# ([A-Z0-9]+\.\d+) .+$", re.MULTILINE)
"""The line above an exercise's code in the solutions."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: the names to be written, and which properties of their subjects count."""

    id: str
    title: str
    statement: str
    hints: tuple[str, ...]
    names: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    """Empty: all that the checker knows."""
    must: tuple[str, ...] = ()
    """Those of them that it adds to code which may do without: until they can be tested, it is not written."""
    uses: tuple[str, ...] = ()
    """Names of the file of the course before, which the file of a further page imports."""
    subject: str = ""
    """`FILE.py:NAME` of a subject beside course.toml; empty: the checker's own, by the name."""
    experiment: str = ""
    """What decides an exercise without code."""
    needs: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()
    """Names of torch's that would do the learner's work."""
    minutes: int = 15
    side: bool = False
    """Whether nothing later needs it."""
    know: str = ""
    reads: tuple[str, ...] = ()
    """Files of the library with the same idea."""

    @property
    def chapter(self) -> str:
        """The part of its number before the dot."""
        return self.id.partition(".")[0]

    @property
    def label(self) -> str:
        """Number and title."""
        return f"{self.id} {self.title}"


@dataclass(frozen=True)
class Chapter:
    """A chapter: its number, title, page in `chapters/`, hours and the notebook that it grew from."""

    number: str
    title: str
    page: str = ""
    hours: float = 0.0
    seed: str = ""


@dataclass(frozen=True)
class Course:
    """A course in a folder."""

    folder: Path
    title: str
    file: str
    """The name of the learner's file."""
    chapters: tuple[Chapter, ...]
    exercises: tuple[Exercise, ...] = field(repr=False)

    @cached_property
    def further(self) -> Course | None:
        """The course of further pages that goes on from this one, if there is one."""
        folder = self.folder / FURTHER
        return read_course(folder) if (folder / "course.toml").is_file() else None

    @cached_property
    def before(self) -> Course | None:
        """The course whose file the file of these further pages imports from; None for a course of chapters."""
        return read_course(self.folder.parent) if self.folder.name == FURTHER else None

    def holding(self, what: str) -> Course:
        """Return the course of further pages if `what` is one of its chapters, exercises or names; else this one."""
        if self.further is None:
            return self
        known = {each.number for each in self.further.chapters}
        names = {name for each in self.further.exercises for name in each.names}
        return self.further if what.partition(".")[0] in known or what in {FURTHER, *names} else self

    def of_file(self, name: str, defined: Collection[str]) -> Course:
        """Return the course of a file with this name that defines these functions and classes: this one, or further."""
        if self.further is None or name == self.file:
            return self
        ours, theirs = ({each for one in course.exercises for each in one.names} for course in (self, self.further))
        further = name == self.further.file or len(theirs & {*defined}) > len(ours & {*defined})
        return self.further if further else self

    def exercise(self, number: str) -> Exercise:
        """Return the exercise with this number. Errors: `ConfigError` with the nearest number."""
        found = [each for each in self.exercises if each.id == number]
        if not found:
            raise ConfigError(f"There is no exercise {number!r}. {suggestion(number, [e.id for e in self.exercises])}")
        return found[0]

    def chapter(self, number: str) -> Chapter:
        """Return the chapter with this number. Errors: `ConfigError`."""
        found = [each for each in self.chapters if each.number == number]
        if not found:
            every = [*self.chapters, *(self.further.chapters if self.further else ())]
            known = suggestion(number, [each.number for each in every])
            way = f" To test code of your own: glassformer check {number}" if number.endswith(".py") else ""
            raise ConfigError(f"There is no chapter {number!r}. {known}{way}")
        return found[0]

    def within(self, number: str) -> list[Exercise]:
        """Return the exercises of a chapter, or the one exercise. Errors: `ConfigError` if there is neither."""
        if any(each.number == number for each in self.chapters):
            return [each for each in self.exercises if each.chapter == number]
        return [self.exercise(number)]

    def named(self, name: str) -> list[Exercise]:
        """Return the exercises in which a function or class of this name is written. Errors: `ConfigError`."""
        found = [each for each in self.exercises if name in each.names]
        if not found:
            known = dict.fromkeys(each for exercise in self.exercises for each in exercise.names)
            raise ConfigError(f"No exercise asks for {name!r}. {suggestion(name, known)}")
        return found

    @cached_property
    def stubs(self) -> dict[str, str]:
        """From the number of an exercise to its stubs; a docstring stands where a name is written first."""
        docstrings: dict[str, str] = {}
        found: dict[str, str] = {}
        for each in self.exercises:
            text = self.solutions.get(each.id, "")
            nodes = {getattr(node, "name", ""): node for node in ast.parse(text).body}
            stubs = [stub(text, nodes[name], each.id, docstrings) for name in each.names if name in nodes]
            if stubs:
                found[each.id] = "\n\n".join([f"# {each.label}\n{stubs[0]}", *stubs[1:]])
        return found

    @cached_property
    def solutions(self) -> dict[str, str]:
        """From the number of an exercise to our solution."""
        return dict(sections(self.folder))

    @property
    def head(self) -> str:
        """What stands above the first stub: the imports."""
        first = files(self.folder)[0].read_text("utf-8")
        return first[: next(iter(HEADING.finditer(first))).start()].rstrip() + "\n"

    def solution_file(self, last: str = "") -> str:
        """Return our file after the exercise `last` (default: after all), each name as it was written last."""
        numbers = [each.id for each in self.exercises]
        numbers = numbers[: numbers.index(last) + 1] if last else numbers
        used = [name for number in numbers for name in self.exercise(number).uses]
        code = assembled([self.solutions[each] for each in numbers if each in self.solutions])
        return self.head + self.import_of(used) + code

    def import_of(self, names: Collection[str]) -> str:
        """Return the line that imports names from the file of the course before; "" for no names."""
        if not names or self.before is None:
            return ""
        return f"from {Path(self.before.file).stem} import {', '.join(dict.fromkeys(names))}\n"

    def write(self, folder: Path, text: str) -> Path:
        """Write a text as the learner's file into a folder, beside ours that it may import from; return its path."""
        if self.before is not None:
            self.before.write(folder, self.before.solution_file())
        path = folder / self.file
        path.write_text(text, "utf-8")
        return path

    def text_of(self, page: str) -> str:
        """Return a chapter's Markdown. Errors: `DataError` if it is not there."""
        path = self.folder / "chapters" / page
        if not page or not path.is_file():
            raise DataError(f"This course has no page for that: {path} is missing.")
        return path.read_text("utf-8")


def files(folder: Path) -> list[Path]:
    """Return the files with solutions: solutions.py, or all of solutions/, in order. Errors: `DataError` for none."""
    single = folder / "solutions.py"
    found = [single] if single.is_file() else sorted((folder / "solutions").glob("*.py"))
    if not found:
        raise DataError(f"The course in {folder} has neither solutions.py nor a folder solutions/.")
    return found


def sections(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the number of an exercise and its code. Errors: `DataError` for code that Python cannot read."""
    for path in files(folder):
        text = path.read_text("utf-8")
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise DataError(f"{path}, line {error.lineno}: {error.msg}.") from None
        found = [*HEADING.finditer(text)]
        for heading, following in zip(found, [*found[1:], None], strict=True):
            end = following.start() if following else len(text)
            yield heading[1], text[heading.start() : end].rstrip() + "\n"


def stub(text: str, node: ast.stmt, number: str, docstrings: dict[str, str]) -> str:
    """Return a function or class of a solution without its bodies, each of which names the exercise instead.

    `docstrings` keeps them by name, for exercises that write a name again. A decorator of torch's belongs to the body.
    """
    lines = text.splitlines()

    def without(node: ast.AST, path: str) -> list[str]:
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        indent = " " * (node.col_offset + 4)
        kept = [each for each in node.decorator_list if not ast.unparse(each).startswith("torch.")]
        head = [lines[each.lineno - 1] for each in kept] + lines[node.lineno - 1 : begins(node.body[0]) - 1]
        if text := ast.get_docstring(node):
            docstrings.setdefault(path, text)
        head += [f'{indent}"""{docstrings[path]}"""'] if path in docstrings else []
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            return head + [line for each in methods for line in ["", *without(each, f"{path}.{each.name}")]]
        first = "super().__init__()" if node.name == "__init__" else f'raise NotImplementedError("exercise {number}")'
        return [*head, indent + first]

    return "\n".join(without(node, getattr(node, "name", ""))) + "\n"


def assembled(parts: Sequence[str]) -> str:
    """Return one text of the definitions in `parts`; a name keeps its first place and gets its last definition."""
    place: dict[str, str] = {}
    for part in parts:
        lines = part.splitlines()
        for node in ast.parse(part).body:
            place[getattr(node, "name", f"line {len(place)}")] = "\n".join(lines[begins(node) - 1 : node.end_lineno])
    return "".join(f"\n\n{text}\n" for text in place.values())


def read_course(folder: Path = OURS) -> Course:
    """Read a course. Errors: `DataError` that says what is wrong in course.toml."""
    path = folder / "course.toml"
    if not path.is_file():
        raise DataError(f"{folder} is no course: it has no course.toml. See docs/teachers.md.")
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}.") from None
    exercises = tuple(value(Exercise, each, path) for each in plain.pop("exercise", []))
    chapters = tuple(value(Chapter, each, path) for each in plain.pop("chapter", []))
    title, file = plain.pop("title", ""), plain.pop("file", "my_transformer.py")
    if plain or not title or not exercises:
        what = f"unknown: {', '.join(plain)}" if plain else "it needs a title and at least one [[exercise]]"
        raise DataError(f"{path}: {what}.")
    if not chapters:
        chapters = tuple(Chapter(each, title) for each in dict.fromkeys(e.chapter for e in exercises))
    complaints = [*unsound(exercises, {each.number for each in chapters})]
    if complaints:
        raise DataError(f"{path}: {'; '.join(complaints)}.")
    return Course(folder, title, file, chapters, exercises)


def value(kind: type[Any], given: Mapping[str, Any], path: Path) -> Any:
    """Return a dataclass of plain values. Errors: `DataError` for a missing or unknown key, or another type."""
    known = {each.name: each for each in fields(kind)}
    who = f"{path}, {kind.__name__.lower()} {given.get('id', given.get('number', '?'))}"
    if unknown := [name for name in given if name not in known]:
        raise DataError(f"{who}: {unknown[0]!r} is not known. {suggestion(unknown[0], known)}")
    if missing := [name for name, each in known.items() if each.default is MISSING and name not in given]:
        raise DataError(f"{who}: {missing[0]} is missing.")
    found: dict[str, Any] = {}
    for name, each in given.items():
        wanted = str(known[name].type).partition("[")[0]
        fits = {"str": str, "tuple": list, "int": int, "float": float, "bool": bool}[wanted]
        number = name == "number" and isinstance(each, int)
        if not isinstance(each, fits) and not number:
            raise DataError(f"{who}: {name} must be a {fits.__name__}; got {each!r}.")
        found[name] = tuple(map(str, each)) if isinstance(each, list) else str(each) if number else each
    return kind(**found)


def unsound(exercises: Sequence[Exercise], chapters: set[str]) -> Iterator[str]:
    """Say what is wrong in a list of exercises: numbers, what they need, hints."""
    seen: set[str] = set()
    for each in exercises:
        if each.id in seen:
            yield f"the exercise {each.id} stands there twice"
        if not re.fullmatch(r"[A-Z0-9]+\.\d+", each.id) or each.chapter not in chapters:
            yield f"the number {each.id!r} must be CHAPTER.NUMBER, as in 1.2 or A.1"
        if unknown := [need for need in each.needs if need not in seen]:
            yield f"{each.id} needs {unknown[0]}, which does not stand before it"
        if len(each.hints) != 3:
            yield f"{each.id} has {len(each.hints)} hints instead of three"
        if not each.names and not each.experiment:
            yield f"{each.id} has no names"
        seen.add(each.id)


# --- the quiz: questions that the chapters answer


@dataclass(frozen=True)
class Question:
    """One question, the answer that is shown, the words that one must hold, and the step of the course."""

    question: str
    answer: str
    accept: tuple[str, ...]
    """Answers that count; with `all_of`, words of which each must be there."""
    source: str
    all_of: bool = False

    def judged(self, given: str) -> bool:
        """Whether an answer counts. Spaces, case, a full stop and thousands' commas do not matter."""
        text = plain(given)
        if self.all_of:
            return all(re.search(each, text) is not None for each in self.accept)
        return text in map(plain, self.accept) or any(equal(text, plain(each)) for each in self.accept)


def plain(text: str) -> str:
    """Return a text in lower case, without spaces at the ends, full stop, brackets and thousands' commas."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.strip().lower().rstrip(".%"))
    return re.sub(r"[\s\[\](),]+", " ", text).strip()


def equal(text: str, other: str) -> bool:
    """Whether two texts are the same number.

    >>> equal("1/2", "0.5"), equal("half", "0.5")
    (True, False)
    """
    try:
        return Fraction(text) == Fraction(other)
    except (ValueError, ZeroDivisionError):
        return False


def questions(course: Course) -> list[Question]:
    """Return the questions of a course. Errors: `DataError` if it has none."""
    path = course.folder / "quiz.toml"
    if not path.is_file():
        raise DataError(f"This course has no quiz: {path} is missing.")
    rows: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["question"]
    return [Question(accept=tuple(row.pop("accept")), **row) for row in rows]
