"""A chapter as one page for the browser, which works from disk: no scripts, no network. Imports no torch."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from glassformer import __version__
from glassformer.base.errors import DataError
from glassformer.learn.course import Chapter, Course
from glassformer.learn.outputs import Output, outputs
from glassformer.learn.pages import CHECKED, cells, folded_hints
from glassformer.store.files import write_text_atomically

STYLE = """
:root { color-scheme: light dark }
* { box-sizing: border-box }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1.05rem/1.6 system-ui, sans-serif }
h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 2.5rem }
p, li { overflow-wrap: anywhere } [role] p { white-space: pre-line }
pre { overflow-x: auto; padding: .7rem; border: 1px solid GrayText; border-radius: .3rem; font-size: .85em }
pre, pre * { line-height: 1.4 } pre.shown { border-width: 0 0 0 .25rem; border-radius: 0 }
img { max-width: 100%; background: white; padding: .3rem; border-radius: .3rem }
.wide { overflow-x: auto; margin: 1rem 0 } math { font-size: 1.1em } summary { cursor: pointer }
nav a { color: inherit } table { border-collapse: collapse }
td, th { padding: .2rem .7rem; border: 1px solid GrayText; vertical-align: top }
"""
NOTE = """
<p>What the cells show here was computed in an empty folder, with our parts. In the notebook
<code>chapter-{}.ipynb</code> it comes from yours.</p>
"""
NOT_YET = """
<p>What the cells show is not on this page yet: <code>glassformer learn {} --open</code> runs them.</p>
"""
FORMULA = re.compile(r"```.*?```|`[^`]*`|\$\$(?P<alone>.+?)\$\$|\$(?P<within>[^\s$](?:[^$\n]*[^\s$])?)\$", re.DOTALL)
ALT = re.compile(r'\balt: "([^"]*)"')


def formula(latex: str, alone: bool) -> str:
    """Return a formula as MathML, which browsers draw and screen readers speak.

    One that stands alone may be wider than the page, so that keys must reach it.
    """
    from docutils.utils.math.latex2mathml import tex2mathml

    text = tex2mathml(re.sub(r"\\[bB]igg?[lr]?(?![a-z])", "", latex), as_block=alone)  # MathML sizes brackets
    return f'<div class="math wide" tabindex="0">{text}</div>' if alone else text


def as_html(text: str) -> str:
    """Return Markdown with formulas between dollars as HTML."""
    from markdown_it import MarkdownIt

    found: list[str] = []

    def kept(match: re.Match[str]) -> str:
        latex = match["alone"] or match["within"]
        if latex is None:
            return match[0]
        found.append(formula(latex, alone=match["alone"] is not None))
        return f"\ue000{len(found) - 1}\ue000"

    body = MarkdownIt("commonmark").enable("table").render(FORMULA.sub(kept, text))
    return re.sub(r"<p>\ue000(\d+)\ue000</p>|\ue000(\d+)\ue000", lambda match: found[int(match[1] or match[2])], body)


def shown(output: Output, options: str) -> str:
    """Return what a cell shows as HTML; a picture is described by the cell's options."""
    if output.kind == "html":
        return output.value
    if output.kind == "png":
        found = ALT.search(options)
        alt = html.escape(found[1] if found else "a picture", quote=True)
        return f'<img alt="{alt}" src="data:image/png;base64,{output.value}">'
    text = html.escape(output.value)
    return f'<pre class="shown">{"This stops here. " if output.kind == "error" else ""}{text}</pre>'


def as_page(course: Course, chapter: Chapter, outputs: Sequence[Sequence[Output]] = (), mark: str = "") -> str:
    """Return a chapter as one HTML page, with what its cells show, as far as they ran. Errors: `DataError`.

    `mark` says in the page what it was made of.
    """
    parts: list[str] = []
    ran = iter(outputs)
    for cell in cells(course.text_of(chapter.page)):
        if cell.is_code:
            parts.append(f"<pre><code>{html.escape(cell.text)}</code></pre>")
            found, requested = next(ran, ()), CHECKED.fullmatch(cell.text)
            if requested:  # where nobody has written anything, there is nothing to tell
                parts.append(as_html(folded_hints(course.exercise(requested[1]))))
            else:
                parts += [shown(each, cell.options) for each in found]
        else:
            parts.append(as_html(cell.text))
    body = "\n".join(parts).replace("<pre", '<pre tabindex="0"')  # keys reach what is wider than the page
    body = re.sub(r"<th[^>]*></th>", "<td></td>", body)
    body = re.sub(
        r"<table.*?</table>", lambda table: f'<div class="wide" tabindex="0">{table[0]}</div>', body, flags=re.S
    )
    title = html.escape(f"Chapter {chapter.number}: {chapter.title}")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    head = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>'
    note = (NOTE if outputs else NOT_YET).format(chapter.number)
    body = body.replace("</h1>", f"</h1>{note}", 1)
    rest = ["<body><main>", body, "</main>", beside(course, chapter), "</body></html>", ""]
    return "\n".join([head, f"<!-- {mark} -->", *rest])


def with_pages(course: Course) -> list[Chapter]:
    """Return the chapters that have a page."""
    return [each for each in course.chapters if each.page and (course.folder / "chapters" / each.page).is_file()]


def beside(course: Course, chapter: Chapter) -> str:
    """Return the links to the chapters before and after, as HTML."""
    chapters = with_pages(course)
    place = chapters.index(chapter)
    links = [
        f'<a rel="{rel}" href="chapter-{each.number}.html">{label}: {html.escape(f"{each.number}. {each.title}")}</a>'
        for rel, label, there in (
            ("prev", "Before", chapters[:place][-1:]),
            ("next", "Next", chapters[place + 1 :][:1]),
        )
        for each in there
    ]
    return f"<nav>{' · '.join(links)}</nav>"


def write_page(course: Course, chapter: Chapter, folder: Path, say: Callable[[str], None]) -> Path:
    """Write the page of a chapter into the learner's folder and return its path. Errors: `DataError`.

    The chapter runs for its pictures; the page is kept, and made again when the chapter or the package changed. Where
    it cannot run, the page is without pictures, and `say` gets the reason. So are the pages that it links to, which are
    written with it.
    """
    course.text_of(chapter.page)  # a chapter without a page has an error of its own
    marks: dict[str, str] = {}
    for each in with_pages(course):
        made_of = f"{__version__} {Path(__file__).read_text('utf-8')} {course.text_of(each.page)}"
        marks[each.number] = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        path = folder / ".learn" / "pages" / f"chapter-{each.number}.html"
        if not path.is_file() or marks[each.number] not in path.read_text("utf-8"):
            write_text_atomically(path, as_page(course, each, mark=marks[each.number]))
    path = folder / ".learn" / "pages" / f"chapter-{chapter.number}.html"
    mark = f"with all that its cells show, {marks[chapter.number]}"
    if mark in path.read_text("utf-8"):
        return path
    say(f"Running chapter {chapter.number} for its pictures, once; this can take a minute.")
    ran: list[list[Output]] = []
    try:
        ran = outputs(course.folder / "chapters" / chapter.page)
        whole = not any(each.kind == "error" for found in ran for each in found)
        stopped = "" if whole else f"it stopped: {ran[-1][-1].value}"
    except DataError as error:
        stopped = str(error)
    if stopped:
        say(f"The page is not complete: {stopped}.")
    write_text_atomically(path, as_page(course, chapter, ran, marks[chapter.number] if stopped else mark))
    return path
