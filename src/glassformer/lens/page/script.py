"""The page's sources: its styles and modules as written, and all modules joined into one script.

A browser fetches modules one by one, each after the one that imports it. To avoid that, we join them into one script:
each module becomes a function that returns its exports, after the modules that it imports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

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
        joined[name] = _scoped(name, text)

    join(FIRST)
    return "\n".join(['"use strict";', "const modules = {};", *joined.values()])


def _scoped(name: str, text: str) -> str:
    exported = ", ".join(EXPORT.findall(text))
    inside = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
    return f'modules["{name}"] = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();\n'
