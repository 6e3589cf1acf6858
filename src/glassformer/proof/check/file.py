"""Looks at a learner's file before it is run: whether it can be parsed, and which documented names it defines."""

from __future__ import annotations

import ast
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.proof.check.signatures import DOCUMENTED, HOME


def names_in(path: Path) -> list[str]:
    """Return the documented names (or aliases) that the file defines or imports, in order of appearance.

    Errors: `DataError` if it is no file, no text, has a syntax error (with its line), or defines nothing to check.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"glassformer check needs a Python file; {path} {what}.")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        line = f" (`{error.text.strip()}`)" if error.text else ""
        raise DataError(f"{path}, line {error.lineno}: {error.msg}{line}. Python cannot read the file.") from None
    except ValueError as error:
        raise DataError(f"{path} is not a Python source file: {error}.") from None
    defined = [name for node in tree.body for name in bound(node)]
    found = [name for name in dict.fromkeys(defined) if name in HOME]
    if not found:
        there = ", ".join(dict.fromkeys(defined)) or "nothing"
        raise DataError(
            f"{path} contains nothing to check. Known names: {', '.join(DOCUMENTED)}. The file defines {there[:150]}. "
            "See glassformer check --help."
        )
    return found


def bound(node: ast.stmt) -> list[str]:
    """Return the names that a top-level statement assigns."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.ImportFrom):
        return [each.asname or each.name for each in node.names]
    if isinstance(node, ast.If | ast.Try | ast.With):
        return [name for each in node.body for name in bound(each)]
    return []
