"""What a table of a learner's parts is made of: right code in one style, and the mistakes planted in it."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.learn.course import read_course


class Part(NamedTuple):
    """Right code of one kind in one style. A row planted: the name that must be given, then pairs (text, instead)."""

    kind: str
    style: str
    text: str
    planted: list[tuple[str, ...]] = []  # noqa: RUF012


COURSE = read_course()


def ours(*numbers: str) -> str:
    """Return the course's own solution of these exercises as a file; what is planted in it must be named."""
    course = COURSE.holding(numbers[0])
    return course.head + "".join(f"\n\n{course.solutions[number]}" for number in numbers)
