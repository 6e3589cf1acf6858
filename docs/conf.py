"""How Sphinx builds the site: Markdown by MyST-NB, which runs the chapters, and formulas as MathML. No network."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import jupyter_cache.executors.utils as execution
from docutils.nodes import Element, SkipNode, TextElement, math, math_block
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.writers.html5 import HTML5Translator

import glassformer
from glassformer.learn.browser import formula

project, author, copyright, release = "glassformer", "The glassformer authors", "The authors", glassformer.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["**/*.ipynb"]  # what a reader downloads
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
# A line that a busy kernel sends in two pieces is one line: MyST-NB ends each piece with a new line.
execution.executenb = partial(execution.executenb, coalesce_streams=True)

default_role = "code"
smartquotes_action = "q"  # two hyphens begin a flag
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88

html_theme = "furo"
html_title = "glassformer"
html_copy_source = html_show_sourcelink = False
html_math_renderer = "mathml"
html_static_path = html_css_files = ["site.css"]


def shown(self: HTML5Translator, node: math | math_block) -> None:
    """Write a formula as the course's own pages have it."""
    self.body.append(formula(node.astext(), alone=isinstance(node, math_block)))
    raise SkipNode


def type_shown(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: TextElement) -> Element | None:
    """Return what a type in a signature links: a public name its place, and all others nothing."""
    if node["refdomain"] != "py" or node["reftype"] not in ("class", "obj", "data", "exc"):
        return None
    name = node["reftarget"].rpartition(".")[2]
    if name not in glassformer.__all__:
        return shown
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", f"glassformer.{name}", node, shown)


MENDED = (
    ('role="heading">', 'role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="On this page">'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)
"""What the theme's pages lack for those who read by ear or without a mouse."""
EMPTY_HEAD = re.compile(r'<th class="head[^"]*"><p></p></th>')
PARAMETERS = re.compile(r"<dl>\n((?:<dd>.*?</dd>\n?)+)</dl>", re.S)
"""The parameters of a long signature, one a line: a list of definitions without anything defined."""


def mend(app: Sphinx, error: Exception | None) -> None:
    """Make the written pages accessible."""
    for path in [] if error else Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        for lacking, whole in MENDED:
            text = text.replace(lacking, whole)
        text = EMPTY_HEAD.sub("<td></td>", text)
        text = PARAMETERS.sub(
            lambda found: found[1].replace("<dd>", '<div style="margin-left: 2rem">').replace("</dd>", "</div>"), text
        )
        path.write_text(text, "utf-8")


def setup(app: Sphinx) -> None:
    """Register the formulas, the types, and what is mended."""
    app.add_html_math_renderer("mathml", (shown, None), (shown, None))
    app.connect("missing-reference", type_shown)
    app.connect("build-finished", mend)
