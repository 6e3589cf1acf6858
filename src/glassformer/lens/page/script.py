"""The page's own sources: styles and modules as they are written, and the modules as one script.

A browser fetches modules one by one, each after the one that imports it; here they become one script, every module a
function of its own whose value is what it exports, those before that others import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

STYLES = ("base.css", "parts.css", "screens.css")
FIRST = "main.js"
"""The module that begins."""
IMPORT = re.compile(r'^import \{ (.+) \} from "lens/(.+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def resources() -> Mapping[str, bytes]:
    """Name to content of every style and module of the page."""
    found = {each.name: each for each in files("glassformer.lens.page").iterdir()}
    return {name: found[name].read_bytes() for name in sorted(found) if name.endswith((".css", ".js"))}


@cache
def style() -> str:
    """The styles, one behind the other."""
    return "".join(resources()[name].decode() for name in STYLES)


@cache
def script() -> str:
    """The modules that the page runs, as one script."""
    joined: dict[str, str] = {}

    def join(name: str) -> None:
        if name in joined:
            return
        text = resources()[name].decode()
        for _, imported in IMPORT.findall(text):
            join(imported)
        joined[name] = _scoped(name, text)

    join(FIRST)
    return "\n".join(['"use strict";', "const modules = {};", *joined.values()])


def _scoped(name: str, text: str) -> str:
    exported = ", ".join(EXPORT.findall(text))
    inside = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
    return f'modules["{name}"] = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();\n'
