"""`learn N --open`: a page from disk with formulas, pictures and what the cells show, without a network."""

from __future__ import annotations

import re

import pytest

from glassformer.cli.main import main
from glassformer.learn import browser
from glassformer.learn.browser import as_html, as_page, write_page
from glassformer.learn.course import Chapter, Course, read_course
from glassformer.learn.outputs import Output, outputs

CHAPTER = """---
head: yes
---

# Chapter 1. A trial

The root of $d_k$, as `$HOME` is not, and

$$\\text{softmax}\\big(QK^\\top\\big)$$

| | b |
| --- | --- |
| 1 | 2 |

```{code-cell} ipython3
import os
print("<here>", os.listdir())
sum([20, 22])
```

```{code-cell} ipython3
:tags: [check]
raise AssertionError
```

```{code-cell} ipython3
:mystnb: {image: {alt: "A line that rises."}}
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
```
"""


@pytest.fixture
def course(tmp_path):
    """A course of one chapter."""
    folder = tmp_path / "taught"
    (folder / "chapters").mkdir(parents=True)
    (folder / "chapters" / "1.md").write_text(CHAPTER, "utf-8")
    return Course(folder, "A trial", "mine.py", (Chapter("1", "A trial", "1.md"),), ())


def test_cells_show_what_they_show_in_a_notebook(course):
    pytest.importorskip("matplotlib")
    [printed, last], [drawn, *more] = outputs(course.folder / "chapters" / "1.md")
    assert (printed.kind, printed.value) == ("text", "<here> ['outputs.jsonl']"), "an empty folder"
    assert (last, drawn.kind) == (Output("text", "42"), "png")
    assert [each.kind for each in more] == ["text"] or not more


def test_the_page_is_made_once_and_again_when_its_chapter_changed(course, tmp_path):
    pytest.importorskip("matplotlib")
    lines: list[str] = []
    path = write_page(course, course.chapters[0], tmp_path, lines.append)
    text = path.read_text("utf-8")
    assert "&lt;here&gt;" in text
    assert '<img alt="A line that rises." src="data:image/png;base64,' in text
    assert text.count("<math") == 2
    assert "AssertionError" not in text
    assert re.findall(r"<th[^>]*></th>", text) == []
    assert len(lines) == 1
    assert write_page(course, course.chapters[0], tmp_path, lines.append) == path
    assert len(lines) == 1
    (course.folder / "chapters" / "1.md").write_text(CHAPTER.replace("20, 22", "20, 23"), "utf-8")
    write_page(course, course.chapters[0], tmp_path, lines.append)
    assert len(lines) == 2
    assert "43" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("instead", "message"),
    [("[1, 2][2]", "IndexError: list index out of range"), ("os._exit(7)", "it ended with code 7: no message")],
)
def test_a_chapter_that_stops_is_shown_and_said_and_runs_again(course, tmp_path, instead, message):
    pytest.importorskip("matplotlib")
    (course.folder / "chapters" / "1.md").write_text(CHAPTER.replace("sum([20, 22])", instead), "utf-8")
    for _ in range(2):
        lines: list[str] = []
        path = write_page(course, course.chapters[0], tmp_path, lines.append)
        assert len(lines) == 2
        assert message in lines[1]
    assert "A trial" in path.read_text("utf-8")


def test_without_matplotlib_the_page_is_a_page_and_says_what_to_install(course, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.learn.outputs.find_spec", lambda name: None)
    lines: list[str] = []
    path = write_page(course, course.chapters[0], tmp_path, lines.append)
    assert "pip install matplotlib" in lines[1]
    assert "sum([20, 22])" in path.read_text("utf-8")


def test_formulas_stay_out_of_code():
    assert as_html("`$a$` and $b$").count("<math") == 1
    assert as_html("```\n$a$\n```\n").count("<math") == 0
    assert as_html("It costs $5 or $ 6.").count("<math") == 0


def test_each_chapter_has_a_page_without_raw_formulas_and_without_a_network():
    first = read_course()
    for course in (first, first.further):
        for chapter in course.chapters:
            text = as_page(course, chapter)
            assert "$" not in re.sub(r"(?s)<pre.*?</pre>|<code>.*?</code>", "", text), chapter.number
            assert "\ue000" not in text
            links = re.findall(r'\b(?:src|href)="([^"]*)"', text)
            assert {*links} <= {f"chapter-{each.number}.html" for each in course.chapters}, chapter.number


def test_open_prints_the_path_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(browser, "outputs", lambda chapter: [[Output("text", f"ran {chapter.name}")]])
    for target, page in (("3", "chapter-3.html"), ("3.2", "chapter-3.html"), ("F2", "chapter-F2.html")):
        assert main(["learn", target, "--open"]) == 0
        path = tmp_path / capsys.readouterr().out.strip()
        assert path.name == page
        text = path.read_text("utf-8")
        assert "ran " in text
        linked = re.findall(r'href="([^"]*)"', text)
        assert len(linked) == 2, "before and next"
        assert all("<h1>" in (path.parent / each).read_text("utf-8") for each in linked)
    assert "ran " in (path.parent / "chapter-3.html").read_text("utf-8"), "a page that was made stays"


def test_below_an_exercise_stand_its_hints_and_no_verdict():
    """The page is made where nobody has written anything."""
    course = read_course()
    chapter = course.chapter("1")
    cells_with_code = len(re.findall(r"^```{code-cell}", course.text_of(chapter.page), re.M))
    page = as_page(course, chapter, [[Output("text", "SEEN")]] * cells_with_code)
    assert page.count("<summary>Hint 3</summary>") == 8
    assert not re.search(r"learn\.check\(.{0,90}SEEN", page, re.S)
    assert "SEEN" in page
