"""The quiz: 20 questions that the chapters answer, read from quiz.toml. Imports no torch."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from glassformer.base.errors import DataError
from glassformer.learn.course import Course


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
