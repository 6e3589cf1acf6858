"""What the cells of a chapter show when it runs: texts, tables and pictures, as in a notebook. Imports no torch.

A chapter runs in a process of its own, in an empty folder and so with our parts: `python -m glassformer.learn.outputs
CHAPTER FILE` writes into FILE a line of JSON for each cell with code.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import linecache
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from glassformer.base.errors import DataError
from glassformer.learn.pages import Cell, cells

LIMIT = 600
"""Seconds that a chapter may take."""


@dataclass(frozen=True)
class Output:
    """One thing that a cell shows: a text, HTML, or a picture as base64 of PNG; `error` ends a chapter."""

    kind: Literal["text", "html", "png", "error"]
    value: str


def picture(figure: Any) -> Output:
    """Return a figure of matplotlib as it is shown."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, bbox_inches="tight", facecolor="white")
    return Output("png", base64.b64encode(file.getvalue()).decode())


def shown(value: Any) -> Output:
    """Return what a notebook shows of the last value of a cell."""
    if hasattr(value, "savefig"):
        return picture(value)
    markup = value._repr_html_() if hasattr(value, "_repr_html_") else None
    return Output("html", markup) if markup else Output("text", repr(value))


def figures() -> Iterator[Output]:
    """Yield the figures that pyplot holds, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        yield from (picture(pyplot.figure(number)) for number in pyplot.get_fignums())
        pyplot.close("all")


def run(code: Sequence[Cell], name: str) -> Iterator[list[Output]]:
    """Run cells in one namespace, as "Run All" does; yield what each shows. What a cell raises is raised."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(code):
        place = f"{name}, cell {number}"
        linecache.cache[place] = (len(cell.text), None, cell.text.splitlines(keepends=True), place)
        tree = ast.parse(cell.text)
        last = tree.body[-1] if tree.body else None
        tree.body = tree.body[: -1 if isinstance(last, ast.Expr) else None]
        found: list[Output] = []
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, place, "exec"), names)
            shows = isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), place, "eval"), names) if shows else None
        if text := printed.getvalue():
            found.append(Output("text", text.rstrip("\n")))
        found += figures()
        if value is not None and not cell.text.rstrip().endswith(";"):
            found.append(shown(value))
        yield found


def work(chapter: Path, out: Path) -> None:
    """Run a chapter in the folder of `out`, and write what each cell shows; an error is the last thing shown."""
    code = [each for each in cells(chapter.read_text("utf-8")) if each.is_code]
    os.chdir(out.parent)
    with out.open("w", encoding="utf-8") as lines:
        try:
            for found in run(code, chapter.stem):
                lines.write(json.dumps([asdict(each) for each in found]) + "\n")
        except Exception as error:
            lines.write(json.dumps([asdict(Output("error", f"{type(error).__name__}: {error}"))]) + "\n")


def outputs(chapter: Path) -> list[list[Output]]:
    """Run a chapter and return what each of its cells with code shows.

    Errors: `DataError` without matplotlib, for a process that ends early, and after ten minutes.
    """
    if find_spec("matplotlib") is None:
        raise DataError("its pictures need matplotlib: pip install matplotlib, and ask again")
    with tempfile.TemporaryDirectory(prefix="glassformer-chapter-") as folder:
        out = Path(folder) / "outputs.jsonl"
        command = [sys.executable, "-m", "glassformer.learn.outputs", str(chapter.resolve()), str(out)]
        environment = {**os.environ, "MPLBACKEND": "Agg"}
        try:
            ended = subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise DataError(f"it ran for more than {LIMIT} seconds") from None
        if ended.returncode != 0:
            lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
            raise DataError(f"it ended with code {ended.returncode}: {lines[-1] if lines else 'no message'}")
        return [[Output(**each) for each in json.loads(line)] for line in out.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
