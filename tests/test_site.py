"""The site: each public name on one page and with an example, each page in the navigation, each link to a page."""

import json
import posixpath
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import pytest

import glassformer
from documents import ROOT
from fresh import printed
from glassformer.learn.course import read_course
from glassformer.proof import check
from glassformer.proof.check.examine import SUBJECTS
from glassformer.proof.check.property import Mistake


@pytest.fixture(scope="module")
def generate():
    """The script that gathers the pages."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        yield import_module("generate")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages(generate, tmp_path_factory):
    """The text of each page, by its name."""
    folder = tmp_path_factory.mktemp("pages")
    generate.main(folder)
    return {it.relative_to(folder).with_suffix("").as_posix(): it.read_text("utf-8") for it in folder.rglob("*.md")}


def test_each_public_name_is_on_one_page(generate):
    names = [name for _, group in generate.API.values() for name in group.split() if "." not in name]
    assert sorted(names) == sorted(glassformer.__all__)


def test_each_name_of_the_reference_has_an_example(generate):
    """In its docstring or, for a table, in that of its module; pytest runs it with all others."""
    names = [name for _, group in generate.API.values() for name in group.split()]
    assert [name for name in names if not has_an_example(name)] == []


def has_an_example(name: str) -> bool:
    module, _, last = name.rpartition(".")
    value = getattr(import_module(f"glassformer.{module}" if module else "glassformer"), last)
    text = import_module(glassformer._HOMES[name]).__doc__ if isinstance(value, dict) else value.__doc__
    return ">>> " in text


def test_links_of_the_pages_lead_to_pages(generate, pages):
    for name, text in pages.items():
        for link in re.findall(r"\]\(([^)\s:#]+)[)#]", generate.FENCED.sub("", text)):
            to = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
            assert to.removesuffix(".md") in pages or (ROOT / "docs" / to).suffix in (".png", ".svg"), (name, link)


def test_each_page_is_in_the_navigation_once(pages):
    """But for those that show a file or a solution, which no search finds either."""
    listed = re.findall(r"^[\w/-]+$", "".join(re.findall(r"```\{toctree\}.*?```", pages["index"], re.S)), re.M)
    quiet = {name for name, text in pages.items() if "orphan: true\nnosearch: true" in text}
    assert sorted(listed) == sorted(pages.keys() - quiet - {"index"})
    assert {name.partition("-")[0].partition("/")[0] for name in quiet} == {"learn", "source"}


def test_pages_of_reference_have_what_the_code_has(pages):
    assert [*SUBJECTS] == re.findall(r"^## (?!Mistakes)(\w+)$", pages["mistakes"], re.M)
    modules = [import_module(f"{check.__name__}.{each.name}") for each in iter_modules(check.__path__)]
    known = {value.name for module in modules for value in vars(module).values() if isinstance(value, Mistake)}
    assert "heads are mixed: they are split without a transpose" in known
    assert known == {each.replace("\\", "") for each in re.findall(r"^### (.+)$", pages["mistakes"], re.M)}
    assert "`--model.n-layers INT`" in pages["settings"]
    assert "solution-1-2.md" in pages["learn/1-looking-things-up"]


def test_the_quiz_is_a_page_with_its_answers_in_folds(pages):
    text = pages["quiz"]
    assert text.count("<details><summary>Answer</summary>") == text.count("</details>") == 20
    assert "same" in text


def test_each_chapter_can_be_downloaded_as_the_notebook_that_a_learner_gets(generate, pages, tmp_path):
    generate.main(tmp_path)
    chapters = [name for name in pages if re.match("learn/f?[0-9]", name)]
    assert len(chapters) == 18
    for name in chapters:
        [link] = re.findall(r"^{download}`This page as a notebook <(.*)>`$", pages[name], re.M)
        cells = json.loads((tmp_path / "learn" / link).read_text("utf-8"))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells)
        assert "learn.check" in text
        assert not re.search(r"^assert |solution-\d", text, re.M)


def test_a_lesson_needs_what_was_taught_before_it(pages):
    course, taught = read_course(), {"1.1", "1.2"}
    found = re.findall(r"^\| .* \| ([\d., ]+) \| (\d+) \|$", pages["teachers"], re.M)
    assert len(found) == 6
    for numbers, minutes in [*found, ("2.8, 3.1", "50")]:
        exercises = [course.exercise(each) for each in numbers.split(", ")]
        assert sum(each.minutes for each in exercises) == int(minutes)
        taught |= {each.id for each in exercises}
        homework = {"2.8", "3.1"}
        assert {need for each in exercises for need in each.needs} <= taught | homework, numbers


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("nbclient") or not find_spec("ipykernel"), reason="no notebook can run (make docs)")
def test_a_notebook_shows_a_drawing_as_its_first_figure():
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    code = ["import matplotlib.pyplot, torch; from glassformer import learn",
            "learn.diagram(torch.nn.Linear(2, 3), torch.zeros(1, 2))"]  # fmt: skip
    notebook = new_notebook(cells=[new_code_cell(each) for each in code])
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert "image/png" in notebook.cells[1].outputs[0].data


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("sphinx"), reason="sphinx is not installed (make docs)")
def test_site_builds_without_a_warning(generate, tmp_path):
    """All but running the chapters, which `make docs` does."""
    generate.main(tmp_path / "pages")
    options = ["-q", "-n", "-W", "--keep-going", "-D", "nb_execution_mode=off", "-c"]
    printed("-m", "sphinx", *options, ROOT / "docs", tmp_path / "pages", tmp_path / "site")
    for path in (tmp_path / "site").rglob("*.html"):
        text = path.read_text("utf-8")
        assert re.findall(r'<(?:script|img|iframe|link)[^>]* (?:src|href)="http[^"]*', text) == [], path
        assert "~glassformer." not in text, f"{path}: a signature that Sphinx could not read"
