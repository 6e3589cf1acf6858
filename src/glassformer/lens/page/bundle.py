"""The page put together: served from a process, as one file, or in a frame of a notebook.

Modules import each other by the names `lens/NAME.js`, which an import map leads to `/static/NAME.js` on a server and to
`data:` addresses in one file. Data stand as base64 of zlib, so that no text of a user's is ever part of the page's own,
and each layer of attention by itself, so that a large one is unpacked where it is looked at.
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
from urllib.parse import quote

from glassformer.lens.trace.container import cut

STYLES = ("base.css", "parts.css", "screens.css")
PLAIN = " !'()*,-./:;=?@[]^_`{|}~$&+"
"""Characters that may stand in a `data:` address within a script as they are; it is smaller than base64."""
FRAME_HEIGHT = 760
"""Of the frame in a notebook, in pixels."""
STANDALONE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"
)
"""Of one file: its own scripts, and no address at all."""


@cache
def resources() -> Mapping[str, bytes]:
    """Name to content of every style and module of the page."""
    found = {each.name: each for each in files("glassformer.lens.page").iterdir()}
    return {name: found[name].read_bytes() for name in sorted(found) if name.endswith((".css", ".js"))}


def modules() -> list[str]:
    """The names of the page's modules."""
    return [name for name in resources() if name.endswith(".js")]


def announced() -> list[str]:
    """Modules that a server's page asks for before others import them: first those that ask for its data."""
    names = modules()
    imported = {found for name in names for found in re.findall(r'from "lens/([^"]+)"', resources()[name].decode())}
    data = {"early.js", *re.findall(r'from "lens/([^"]+)"', resources()["data.js"].decode()), "data.js"}
    return sorted((name for name in names if name in imported | data), key=lambda name: name not in data)


@cache
def import_map() -> str:
    """The import map of the served page, as JSON."""
    return json.dumps({"imports": {f"lens/{name}": f"/static/{name}" for name in modules()}})


def served() -> str:
    """The page as a server gives it: it holds no data, and asks the server for all."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">' for name in STYLES)
    early = "".join(f'<link rel="modulepreload" href="/static/{name}">' for name in announced())
    head = f'{styles}<script type="importmap">{import_map()}</script>{early}{_schema()}'
    begin = "".join(f'<script type="module" src="/static/{name}"></script>' for name in ("early.js", "main.js"))
    return _page(head, begin)


@cache
def served_policy() -> str:
    """The content security policy of the served page: nothing but what the server itself gives."""
    digest = base64.b64encode(hashlib.sha256(import_map().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )


def standalone(traces: Sequence[bytes], run: Mapping[str, Any]) -> str:
    """One file with the page and its data: the bytes of traces, and facts of the run (name, metrics, diagnosis)."""
    texts = {name: bare(data.decode()) for name, data in resources().items()}
    policy = f'<meta http-equiv="content-security-policy" content="{STANDALONE_POLICY}">'
    styles = "".join(f"<style>{texts[name]}</style>" for name in STYLES)
    addresses = {
        f"lens/{name}": f"data:text/javascript;charset=utf-8,{quote(texts[name], PLAIN)}" for name in modules()
    }
    mapped = f'<script type="importmap">{json.dumps({"imports": addresses})}</script>'
    told: list[str] = []
    parts: list[str] = []
    for i, each in enumerate(traces):
        header, pieces = cut(each)
        told.append(_packed(header))
        for name, layers in pieces.items():
            parts.extend(_part(f"{i} {name} {layer}", data) for layer, data in enumerate(layers))
    bundle = {"run": _packed(json.dumps(run).encode()), "traces": told}
    data = f'<script type="application/json" id="bundle">{json.dumps(bundle)}</script>'
    head = f"{policy}{styles}{mapped}{_schema()}{data}"
    return _page(head, f'<script type="module">import "lens/main.js"</script>{"".join(parts)}')


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
