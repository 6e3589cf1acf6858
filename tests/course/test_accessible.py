"""axe-core finds nothing on what the course shows in a browser, in both themes and on a narrow screen: `make axe`."""

from __future__ import annotations

import base64
import importlib
import io
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from documents import ROOT
from glassformer.learn import finish
from glassformer.learn.browser import as_page
from glassformer.learn.course import read_course
from glassformer.learn.outputs import Output
from glassformer.learn.report import Verdict, verdict_shown
from glassformer.proof.check.property import Outcome, Piece
from lens.page.conftest import CHROMIUM, lacks

COURSE = read_course()
EXERCISE = COURSE.exercise("2.1")
FAILS = Outcome("mask", "law", "fails", "the mask is inverted", "2.6 off", "True hides", "Which positions?", line=34)
HOLDS = Outcome("equation", "law", "holds")


@pytest.fixture
def axe(monkeypatch):
    """The script of `make axe`."""
    if find_spec("axe_playwright_python") is None or not CHROMIUM.exists():
        lacks("axe-playwright-python or chromium is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("axe")


def report(state: str, *outcomes: Outcome) -> str:
    """What a notebook shows below `learn.check`."""
    piece = Piece("attention", "attention", 30, properties=[*outcomes])
    return verdict_shown(EXERCISE, Verdict("2.1", state, "the mask is inverted", [piece]))._repr_html_()


def diploma() -> str:
    """A diploma, of figures that nobody reached."""
    who = finish.Graduate("Ada <Ada>", [each.label for each in COURSE.exercises], 125.0)
    picture = SimpleNamespace(head="decoder.blocks.0, head 1", text=" letter" * 20 + "\n")
    trained = SimpleNamespace(losses=[3.0, 1.0, 0.1], exact=1.0, picture=picture)
    return finish.diploma(who, SimpleNamespace(sentence=lambda: "yours: post-norm"), {"reverse": trained})


def chapter() -> str:
    """A page of the course with each kind of output."""
    image = pytest.importorskip("PIL.Image")
    drawn = io.BytesIO()
    image.new("RGB", (900, 300), "white").save(drawn, "PNG")
    picture = Output("png", base64.b64encode(drawn.getvalue()).decode())
    seen = [Output("text", "wide " * 60), Output("html", report("fails", FAILS, HOLDS)), picture]
    return as_page(COURSE, COURSE.chapters[0], [seen] * 50)


@pytest.mark.slow
@pytest.mark.shapes(False)  # stand-ins for a run
def test_pages_of_the_course_have_no_finding(axe, tmp_path, capsys):
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A notebook</title></head><body><main>'
    shown = report("fails", FAILS, HOLDS) + report("done", HOLDS)
    pages = {"chapter": chapter(), "diploma": diploma(), "report": f"{head}<h1>A notebook</h1>{shown}</main></body>"}
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text, "utf-8")
    assert axe.main([str(tmp_path)]) == 0, capsys.readouterr().out
    assert "3 pages, 3 themes: 0 findings, 0 requests" in capsys.readouterr().out


@pytest.mark.slow
def test_a_page_with_findings_and_requests_is_found(axe, tmp_path, capsys):
    path = tmp_path / "bad.html"
    path.write_text('<body><img src="http://example.org/a.png"><pre style="width: 900px">x</pre></body>', "utf-8")
    assert axe.main([str(path)]) == 1
    out = capsys.readouterr().out
    assert "image-alt" in out
    assert "narrow: a request to http://example.org/a.png" in out
    assert "pixels wider than its screen" in out
