"""The form of the chapters: what plain Jupyter can show, short sentences, described pictures, each exercise once."""

from __future__ import annotations

import ast
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from course import chapters
from course.chapters import CHAPTERS, FOLDER, Cell, cells_of, sentences
from fresh import python
from glassformer.learn.course import read_course
from glassformer.learn.workspace import Workspace

COURSE = read_course()
EACH = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def complaints(text: str) -> list[str]:
    """What is wrong with the form of one chapter."""
    cells = cells_of(text)
    return [each for rule in RULES for each in rule(cells)]


def parses(cells: list[Cell]) -> list[str]:
    found = []
    for cell in cells:
        try:
            ast.parse(cell.text if cell.is_code else "")
        except SyntaxError as error:
            found.append(f"{error}: {cell.text}")
    return found


def plain_markdown(cells: list[Cell]) -> list[str]:
    prose = "\n".join(cell.text for cell in cells if not cell.is_code)
    tags = set(re.findall(r"</?([a-z]+)", re.sub(r"`[^`]*`", "", prose))) - {"details", "summary"}
    roles = re.findall(r"\{[a-z:-]+\}`|^:::.*$|^```\{.*$|^\{.*\}$", prose, re.M)
    return [f"plain Jupyter shows {each!r} as it is written" for each in (*tags, *roles)]


def fits(cells: list[Cell]) -> list[str]:
    lines = sum(cell.text.count("\n") + 3 for cell in cells if not cell.is_code)  # with the blank ones around it
    return [f"{lines} lines of Markdown; at most 400"] * (lines > 400)


def short_sentences(cells: list[Cell]) -> list[str]:
    found = [each for cell in cells if not cell.is_code for each in sentences(cell.text)]
    long = [each for each in found if len(each.split()) > 25]
    return [f"{len(long)} of {len(found)} sentences have more than 25 words: {long}"] * (len(long) > 0.1 * len(found))


def described(cells: list[Cell]) -> list[str]:
    """A cell that shows a picture says in words what is to be seen."""
    shown = [it for it in cells if re.search(r"plt\.show\(\)|learn\.diagram\(|\bplot_\w+\(", it.text) and it.is_code]
    return [f"a picture without a description:\n{cell.text}" for cell in shown if "image: {alt: " not in cell.options]


def checks_apart(cells: list[Cell]) -> list[str]:
    """An assertion stands in a cell of its own, tagged, which the learner's copy leaves out."""
    return [
        f"assertions and their tag belong together:\n{cell.text}"
        for cell in cells
        if cell.is_code and bool(re.search(r"^\s*assert ", cell.text, re.M)) != (cell.options == ":tags: [check]\n")
    ]


def predictions_folded(cells: list[Cell]) -> list[str]:
    prose = "\n".join(cell.text for cell in cells if not cell.is_code)
    questions, folds = prose.count("**Predict first.**"), prose.count("<details><summary>")
    return [f"{questions} predictions, {folds} folds"] * (questions > folds or folds != prose.count("</details>"))


def files_are_there(cells: list[Cell]) -> list[str]:
    named = {each for cell in cells for each in re.findall(r'"([a-z_]+/[a-z_/]+\.py)"', cell.text)}
    return [f"{each} is no file of the library" for each in sorted(named) if not (FOLDER.parents[1] / each).is_file()]


RULES = (parses, plain_markdown, fits, short_sentences, described, checks_apart, predictions_folded, files_are_there)


@EACH
def test_form(path):
    assert complaints(path.read_text("utf-8")) == []


HEAD = "---\njupytext:\n  a: b\n---\n"


@pytest.mark.parametrize("planted", [
    "```{code-cell} ipython3\nx = (\n```\n",
    "```{note}\nA directive.\n```\n",
    "A {term}`role`.\n",
    "<b>HTML</b>\n",
    "A line.\n" * 401,
    "word " * 26 + ".\n",
    "```{code-cell} ipython3\nplt.show()\n```\n",
    "```{code-cell} ipython3\nassert True\n```\n",
    "**Predict first.** How many?\n",
    '```{code-cell} ipython3\nprint("nn/missing.py")\n```\n',
])  # fmt: skip
def test_a_planted_fault_of_form_is_found(planted):
    assert complaints(HEAD + planted)
    assert not complaints(HEAD + "Short words.\n")


@EACH
def test_each_exercise_stands_once_in_its_chapter(path):
    number = path.name.partition("-")[0].upper()
    wanted = COURSE.holding(number).within(number)
    text = path.read_text("utf-8")
    headings = re.findall(r"^### Exercise (F?\d+\.\d) (.*?) \((\d+) minutes(, side step)?", text, re.M)
    facts = [(each.id, each.title, str(each.minutes), each.side) for each in wanted]
    assert [(number, title, minutes, bool(side)) for number, title, minutes, side in headings] == facts
    assert re.findall(r'^learn\.check\("(F?\d+\.\d)"\)$', text, re.M) == [each.id for each in wanted]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Jupyter's own
@pytest.mark.parametrize("state", ["before", "after"])
@EACH
def test_it_runs_before_the_exercises_and_after_them(path, state, tmp_path):
    """In Jupyter, by Run All. Also each number that its prose states holds then: the tagged cells run too."""
    for module in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(module)
    begin(path, state, tmp_path)
    holds(state, *chapters.run_in_jupyter(path, tmp_path, {**os.environ}))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nbclient") is not None, reason="it runs in Jupyter, which is here")
@pytest.mark.parametrize("state", ["before", "after"])
@EACH
def test_it_runs_without_jupyter(path, state, tmp_path):
    pytest.importorskip("matplotlib")
    begin(path, state, tmp_path)
    environment = os.environ | {"MPLBACKEND": "Agg"}
    ran = python(chapters.__file__, path, cwd=tmp_path, env=environment, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr[-3000:]
    holds(state, ran.stdout, ran.stderr)


def begin(path: Path, state: str, folder: Path) -> None:
    """Put a learner's file into the folder: with empty stubs, or with all solutions."""
    number = path.name.partition("-")[0].upper()
    course = COURSE.holding(number)
    if state == "after":
        course.write(folder, course.solution_file())
    else:
        Workspace(course, folder).add_stubs(number)


def holds(state: str, printed: str, complaints: str) -> None:
    """Nothing is complained of, and the parts are the learner's after the exercises alone."""
    assert complaints == ""
    whose = set(re.findall(r"^\w+: (yours|ours)", printed, re.M))
    assert not whose or ("yours" in whose) == (state == "after"), printed
