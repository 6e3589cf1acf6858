"""Assembling the page: served by a process, as one file, or in a frame of a notebook.

A browser fetches modules one by one, each after the one that imports it. To avoid that, we join them into one script:
each module becomes a function that returns its exports, after the modules that it imports. A server sends this script
and one style; a single file contains them. In the file, script and data are zlib in base64: that is small, and a user's
text is never part of the page's own HTML. Each layer of attention is a part of its own, so that a large one is unpacked
only when it is shown.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from glassformer.lens.trace.file import cut, header_schema

STYLES = ("base.css", "parts.css", "screens.css")
FIRST = "main.js"
"""The entry module."""
IMPORT = re.compile(r'^import \{ (.+) \} from "lens/(.+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def resources() -> Mapping[str, bytes]:
    """Return every style and module of the page, name to content."""
    found = {each.name: each for each in files("glassformer.lens.page").iterdir()}
    return {name: found[name].read_bytes() for name in sorted(found) if name.endswith((".css", ".js"))}


@cache
def style() -> str:
    """Return the styles, concatenated."""
    return "".join(resources()[name].decode() for name in STYLES)


@cache
def script() -> str:
    """Return the page's modules as one script."""
    joined: dict[str, str] = {}

    def join(name: str) -> None:
        if name in joined:
            return
        text = resources()[name].decode()
        for _, imported in IMPORT.findall(text):
            join(imported)
        exported = ", ".join(EXPORT.findall(text))
        inside = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
        joined[name] = f'modules["{name}"] = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();\n'

    join(FIRST)
    return "\n".join(['"use strict";', "const modules = {};", *joined.values()])


# The page with its script, its style and, in a single file, its data.

STYLE, SCRIPT = "page.css", "page.js"
"""The names under which a server sends them."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""The content security policy of the served page: load from the server itself only."""
UNPACK = """
(async () => {
  const letters = atob(document.getElementById("code").textContent);
  const packed = Uint8Array.from(letters, (each) => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.body.append(script);
})().catch(() => {
  document.getElementById("main").textContent = "This page needs a browser of 2023 or later.";
});
"""
"""The script in a single file. It unpacks and runs the page's script, which the file's policy allows by its digest."""
FRAME_HEIGHT = 760
"""Height of the frame in a notebook, in pixels."""


def served() -> str:
    """Return the page for a server: it contains no data and fetches everything from the server."""
    head = f'<link rel="stylesheet" href="/static/{STYLE}"><script defer src="/static/{SCRIPT}"></script>'
    return _page(head, "")


@cache
def static() -> Mapping[str, tuple[str, str]]:
    """Return what the served page fetches besides its data: name to content and content type."""
    return {
        STYLE: (style(), "text/css; charset=utf-8"),
        SCRIPT: (script(), "text/javascript; charset=utf-8"),
    }


def standalone(traces: Sequence[bytes], run: Mapping[str, Any]) -> str:
    """Return one HTML file with the page and its data: the bytes of traces, and facts of the run.

    `run` has its name, metrics and diagnosis.
    """
    styles, does = bare(style()), bare(script())
    packed: list[str] = []
    parts: list[str] = []
    for i, each in enumerate(traces):
        header, pieces = cut(each)
        packed.append(_packed(header))
        for name, layers in pieces.items():
            parts.extend(_part(f"{i} {name} {layer}", data) for layer, data in enumerate(layers))
    bundle = {"run": _packed(json.dumps(run).encode()), "traces": packed}
    data = f'<script type="application/json" id="bundle">{json.dumps(bundle)}</script>'
    policy = f'<meta http-equiv="content-security-policy" content="{_standalone_policy(styles, does)}">'
    head = f"{policy}<style>{styles}</style>{_schema()}{data}"
    code = f'<script type="text/plain" id="code">{_packed(does.encode())}</script>'
    return _page(head, f"{''.join(parts)}{code}<script>{UNPACK}</script>")


def _standalone_policy(styles: str, does: str) -> str:
    """Return the policy of a single file: its own script and style, and no network address."""
    scripts = f"'{_digest(UNPACK)}' '{_digest(does)}'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{_digest(styles)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bare(text: str) -> str:
    """Remove `/* */` comments and indentation, of which the page has a lot, from a script or a style."""
    return re.sub(r"\n\s*", "\n", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def framed(page: str) -> str:
    """Put a page into a sandboxed frame: it may run its scripts and save files, but not reach the surrounding page."""
    inside = html.escape(page, quote=True)
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{inside}" width="100%" height="{FRAME_HEIGHT}" '
        'style="border:0" title="glassformer trace"></iframe>'
    )


def _page(head: str, script: str) -> str:
    template = files("glassformer.lens.page").joinpath("index.html").read_text("utf-8")
    return Template(template).substitute(head=head, script=script)


def _schema() -> str:
    text = json.dumps(header_schema(), separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="schema">{text}</script>'


def _part(name: str, data: bytes) -> str:
    return f'<script type="text/plain" data-part="{html.escape(name, quote=True)}">{_packed(data)}</script>'


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")
