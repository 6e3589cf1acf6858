"""A chapter of the course as a list of cells, read as MyST-NB reads it, and run: `python chapters.py CHAPTER`."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from pathlib import Path

import glassformer
from glassformer.learn.pages import Cell, cells

FOLDER = Path(glassformer.__file__).parent / "learn" / "chapters"
FURTHER = FOLDER.parent / "further" / "chapters"
CHAPTERS = [*sorted(FOLDER.glob("*.md")), *sorted(FURTHER.glob("*.md"))]


def cells_of(text: str) -> list[Cell]:
    """Return the cells of a chapter in order. Errors: AssertionError without the head that jupytext writes."""
    assert text.startswith("---\njupytext:\n"), "a chapter begins with jupytext's head"
    return [*cells(text, checks=True)]


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a Markdown cell: no tables, drawings, headings or formulas; a list's item is one."""
    text = re.sub(r"^```.*?^```$|^\$\$.*?\$\$$|^\|.*?$|^#.*?$", "", markdown, flags=re.S | re.M)
    text = re.sub(r"</?(details|summary)>|`[^`]*`|\$[^$]*\$", "X", text)
    parts = re.split(r"(?<=[.!?:;])[)*]*\s+|\n\s*\n|\n(?=(?:- |\d\. ))", text)
    return [" ".join(part.split()) for part in parts if len(part.split()) > 2]


def run(path: Path) -> None:
    """Run all cells of a chapter in one namespace, as "Run All" does: the last expression of a cell is shown."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(each for each in cells_of(path.read_text("utf-8")) if each.is_code):
        name = f"{path.stem}, cell {number}"
        linecache.cache[name] = (len(cell.text), None, cell.text.splitlines(keepends=True), name)
        tree = ast.parse(cell.text)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), name, "eval"), names)
            print("" if shown is None else repr(shown))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
