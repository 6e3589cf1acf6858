"""Chapters, which are MyST Markdown, as cells, as notebooks and as sections for the terminal. Imports no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.learn.course import Chapter, Course, Exercise
from glassformer.learn.source import back_up
from glassformer.store.files import write_text_atomically

HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)^```$\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """One cell of a chapter; `options` are the lines `:name: value` above the code."""

    text: str
    is_code: bool
    options: str = ""


def cells(text: str, *, checks: bool = False) -> Iterator[Cell]:
    """Yield the cells of a chapter; those that check the numbers of the page are for its tests, with `checks`."""
    text = HEAD.sub("", text)
    end = 0
    for fence in FENCE.finditer(text):
        if prose := text[end : fence.start()].strip():
            yield Cell(prose, is_code=False)
        if checks or "[check]" not in fence[1]:
            yield Cell(fence[2].rstrip("\n"), True, fence[1])
        end = fence.end()
    if prose := text[end:].strip():
        yield Cell(prose, is_code=False)


CHECKED = re.compile(r'learn\.check\("([^"]+)"\)')
"""The cell below an exercise, where a page has its hints."""


def folded_hints(exercise: Exercise) -> str:
    """Return the hints of an exercise as Markdown: folds, each within the one before."""
    text = ""
    for number, hint in reversed([*enumerate(exercise.hints, 1)]):
        text = f"<details><summary>Hint {number}</summary>\n\n{hint}\n\n{text}</details>\n\n"
    return text


def as_notebook(text: str, *, checks: bool = False) -> str:
    """Return a chapter as a notebook of format 4.5, without outputs; with `checks` also the cells that test it."""
    rows: list[dict[str, object]] = []
    for number, cell in enumerate(cells(text, checks=checks)):
        row: dict[str, object] = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
        code = {"cell_type": "code", "execution_count": None, "outputs": []}
        rows.append({**row, **(code if cell.is_code else {"cell_type": "markdown"})})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": rows, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def write_notebook(course: Course, chapter: Chapter, folder: Path, again: bool = False) -> tuple[Path, bool]:
    """Write the notebook of a chapter if it is not there. Returns its path and whether it is new.

    With `again` it is written anew, and the old one goes into the backups. Errors: `DataError` without a page.
    """
    path = folder / f"chapter-{chapter.number}.ipynb"
    if path.exists() and not again:
        return path, False
    text = as_notebook(course.text_of(chapter.page))
    back_up(path, folder / ".learn" / "backup")
    write_text_atomically(path, text)
    return path, True


def section(course: Course, exercise: Exercise) -> str:
    """Return the step of the chapter that leads to an exercise, as Markdown. Errors: `DataError`."""
    text = HEAD.sub("", course.text_of(course.chapter(exercise.chapter).page))
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        if re.search(rf"^#+ .*\b{re.escape(exercise.id)}\b", part, re.MULTILINE):
            return readable(part)
    raise DataError(f"The chapter has no section for {exercise.label} yet. What it asks for: {exercise.statement}")


def whole(course: Course, chapter: Chapter) -> str:
    """Return a chapter as Markdown. Errors: `DataError`."""
    return readable(course.text_of(chapter.page))


def readable(text: str) -> str:
    """Return Markdown in which code cells are plain fences, and folds stand open."""
    parts = [f"```python\n{cell.text}\n```" if cell.is_code else cell.text for cell in cells(text)]
    return re.sub(r"</?(details|summary)>", "", "\n\n".join(parts))
