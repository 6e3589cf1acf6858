"""The documents as text, and the parts that tests look at: fenced blocks, sections, rows of tables."""

import re
from collections.abc import Iterator

import architecture

ROOT = architecture.ROOT
DOCUMENTS = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in DOCUMENTS}
README, ARCHITECTURE, GLOSSARY = (TEXTS[name] for name in ("README.md", "docs/architecture.md", "docs/glossary.md"))

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language ("" for none)."""
    return [body for kind, body in FENCED.findall(text) if kind == language]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next of its rank."""
    return f"\n{text}".partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def tables(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, heads and rulers left out."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_row = line.startswith("|") and not re.match(r"\|[ :|-]+\|$", line)
        if is_row and not (number + 1 < len(lines) and re.match(r"\|[ :|-]+\|$", lines[number + 1])):
            yield [cell.strip() for cell in line.strip("|").split("|")]
