"""The page put together: served from a process, as one file, or in a frame of a notebook.

Its modules are one script (`script.py`), its styles one style: two answers of a server, or written into one file. The
script and the data stand in a file as base64 of zlib: it is small, and no text of a user's is ever part of the page's
own. Each layer of attention stands by itself, so that a large one is unpacked where it is looked at.
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

from glassformer.lens.page.script import script, style
from glassformer.lens.trace.container import cut

STYLE, SCRIPT = "page.css", "page.js"
"""Names under which a server gives them."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Of the served page: nothing but what the server itself gives."""
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
"""The script of one file: it unpacks the page's own, which the file's policy knows by its digest, and begins it."""
FRAME_HEIGHT = 760
"""Of the frame in a notebook, in pixels."""


def served() -> str:
    """The page as a server gives it: it holds no data, and asks the server for all."""
    head = f'<link rel="stylesheet" href="/static/{STYLE}"><script defer src="/static/{SCRIPT}"></script>'
    return _page(head, "")


@cache
def static() -> Mapping[str, tuple[str, str]]:
    """What the served page asks for beside its data: name to content and its type."""
    return {
        STYLE: (style(), "text/css; charset=utf-8"),
        SCRIPT: (script(), "text/javascript; charset=utf-8"),
    }


def standalone(traces: Sequence[bytes], run: Mapping[str, Any]) -> str:
    """One file with the page and its data: the bytes of traces, and facts of the run (name, metrics, diagnosis)."""
    styles, does = bare(style()), bare(script())
    told: list[str] = []
    parts: list[str] = []
    for i, each in enumerate(traces):
        header, pieces = cut(each)
        told.append(_packed(header))
        for name, layers in pieces.items():
            parts.extend(_part(f"{i} {name} {layer}", data) for layer, data in enumerate(layers))
    bundle = {"run": _packed(json.dumps(run).encode()), "traces": told}
    data = f'<script type="application/json" id="bundle">{json.dumps(bundle)}</script>'
    policy = f'<meta http-equiv="content-security-policy" content="{_standalone_policy(styles, does)}">'
    head = f"{policy}<style>{styles}</style>{_schema()}{data}"
    code = f'<script type="text/plain" id="code">{_packed(does.encode())}</script>'
    return _page(head, f"{''.join(parts)}{code}<script>{UNPACK}</script>")


def _standalone_policy(styles: str, does: str) -> str:
    """Of one file: its own script and style, and no address at all."""
    scripts = f"'{_digest(UNPACK)}' '{_digest(does)}'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{_digest(styles)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def bare(text: str) -> str:
    """A script or a style without its comments in `/* */` and without indentation, of which the page has many."""
    return re.sub(r"\n\s*", "\n", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def framed(page: str) -> str:
    """A page in a frame that may run its own scripts and save files, and reaches nothing of the page around it."""
    inside = html.escape(page, quote=True)
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{inside}" width="100%" height="{FRAME_HEIGHT}" '
        'style="border:0" title="glassformer trace"></iframe>'
    )


def _page(head: str, script: str) -> str:
    template = files("glassformer.lens.page").joinpath("index.html").read_text("utf-8")
    return Template(template).substitute(head=head, script=script)


def _schema() -> str:
    schema = json.loads(files("glassformer.lens.trace").joinpath("schema.json").read_text("utf-8"))
    text = json.dumps(schema, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="schema">{text}</script>'


def _part(name: str, data: bytes) -> str:
    return f'<script type="text/plain" data-part="{html.escape(name, quote=True)}">{_packed(data)}</script>'


def _packed(data: bytes) -> str:
    return _base64(zlib.compress(data, 9))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
