"""A chapter of the course as a list of cells, read as MyST-NB reads it, and run: `python chapters.py CHAPTER`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import glassformer
from glassformer.learn import outputs
from glassformer.learn.pages import Cell, as_notebook, cells

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
    """Run all cells of a chapter, as "Run All" does, and print what they show."""
    for found in outputs.run([each for each in cells_of(path.read_text("utf-8")) if each.is_code], path.stem):
        print(*(each.value for each in found if each.kind != "png"), sep="\n")


def run_in_jupyter(path: Path, folder: Path, env: dict[str, str]) -> tuple[str, str]:
    """Run all cells of a chapter in a kernel of Jupyter, in a folder; return what they print and what they complain of.

    What a cell raises is raised.
    """
    import nbclient
    import nbformat

    notebook = nbformat.reads(as_notebook(path.read_text("utf-8"), checks=True), 4)
    settings = {"timeout": 600, "kernel_name": "python3", "resources": {"metadata": {"path": str(folder)}}}
    nbclient.NotebookClient(notebook, **settings).execute(env=env)
    shown = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    streams = {
        name: "".join(each["text"] for each in shown if each.get("name") == name) for name in ("stdout", "stderr")
    }
    return streams["stdout"], streams["stderr"]


if __name__ == "__main__":
    run(Path(sys.argv[1]))
