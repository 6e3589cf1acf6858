"""Reads the code of tutorial notebooks from `.ipynb`, `.py` or exported `.txt` files, without running their demos."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = (".ipynb", ".txt", ".py")
CELL = "In [None]:"
"""What stands before each code cell in an export as text."""
MARKS = {
    "000": {"MultiHeadSelfAttention", "PositionwiseFFN", "TransformerEncoder"},
    "001": {"scaled_dot_product_attention", "SelfAttention", "MultiHeadAttention", "FeedForward"},
    "002": {"CopyDataset", "MultiHeadAttention", "TransformerEncoder"},
    "003": {"TransformerEncoderBlock", "TransformerDecoderBlock"},
    "004": {"EncoderLayer", "DecoderLayer", "Transformer", "create_causal_mask"},
}
"""What each tutorial defines, by which it is known in a file of any name."""


def notebook_file(folder: Path, number: str) -> Path | None:
    """Return the file of a tutorial: one whose name begins with its number, else one that defines its parts."""
    files = [each for each in sorted(folder.iterdir()) if each.suffix in KINDS]
    named = [each for each in files if each.name.startswith(number)]
    known = (each for each in files if not each.name[:3].isdigit() and {*defined(each)} >= MARKS[number])
    return named[0] if named else next(known, None)


def looked_for(folder: Path, number: str) -> str:
    """Say what was looked for in a folder, and what is in it."""
    files = [each.name for each in sorted(folder.iterdir()) if each.suffix in KINDS]
    found = f"it holds {', '.join(files[:8])}{' ...' if len(files) > 8 else ''}" if files else "it holds none of these"
    return (
        f"tutorial {number} is not in {folder}: looked for {' or '.join(f'{number}*{kind}' for kind in KINDS)}, or a "
        f"file that defines {', '.join(sorted(MARKS[number]))}; {found}"
    )


def source(path: Path) -> str:
    """Return the code cells of a notebook, in order."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        code = ("".join(each["source"]) for each in cells if each["cell_type"] == "code")
    elif CELL in text:
        code = (python_part(cell) for cell in text.split(CELL)[1:])
    elif "```python" in text:
        code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    else:
        code = [text]
    return "\n\n".join(map(without_commands, code))


def without_commands(code: str) -> str:
    """Return the code without a notebook's shell and magic lines."""
    return "\n".join(line for line in code.split("\n") if not line.lstrip().startswith(("!", "%")))


def python_part(cell: str) -> str:
    """Return the longest beginning of a cell that is Python: in an export as text, prose follows without a mark."""
    lines = without_commands(cell).split("\n")
    while lines:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            lines = lines[: max(0, min(error.lineno or 1, len(lines)) - 1)]
        else:
            break
    return "\n".join(lines)


def parts(path: Path) -> Iterator[ast.stmt]:
    """Yield the imports, classes and functions of a notebook, except what draws pictures. Errors: `SyntaxError`."""
    for node in ast.parse(source(path), str(path)).body:
        drawing = isinstance(node, ast.Import | ast.ImportFrom) and "matplotlib" in ast.unparse(node)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef) and not drawing:
            yield node


def defined(path: Path) -> list[str]:
    """Return the names of a file's classes and functions; none for a file that is no Python."""
    try:
        return [each.name for each in parts(path) if isinstance(each, ast.ClassDef | ast.FunctionDef)]
    except (SyntaxError, ValueError, KeyError):
        return []


def definitions(path: Path) -> dict[str, Any]:
    """Return a notebook's classes and functions by name. They are imported as a module; nothing else of it runs."""
    with tempfile.TemporaryDirectory(prefix="glassformer-notebook-") as folder:
        copy = Path(folder) / "notebook.py"
        copy.write_text(ast.unparse(ast.Module([*parts(path)], [])), "utf-8")
        spec = importlib.util.spec_from_file_location("notebook", copy)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return {name: thing for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")}
