"""Checks a learner's file in a separate process with a time limit, after looking at which names it defines."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glassformer.base.errors import DataError
from glassformer.proof.check.report import Report
from glassformer.proof.check.signatures import DOCUMENTED, HOME

LIMIT = 60.0
"""Seconds for all of a learner's code. Starting Python and torch does not count."""
START = 120.0
"""Seconds for starting Python and torch."""


def names_in(path: Path) -> list[str]:
    """Return, in order, the public functions and classes that the file defines, and the documented names it imports.

    Errors: `DataError` if it is no file, no text, has a syntax error (with its line), or defines nothing to check.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"glassformer check needs a Python file; {path} {what}.")
    tree = tree_of(path, path.read_bytes())
    defined = dict(pair for node in tree.body for pair in bound(node))
    if not {*defined} & {*HOME}:
        there = ", ".join(defined) or "nothing"
        raise DataError(
            f"{path} contains nothing to check. Known names: {', '.join(DOCUMENTED)}. The file defines {there[:150]}. "
            "See glassformer check --help."
        )
    return [name for name, own in defined.items() if name in HOME or (own and not name.startswith("_"))]


def tree_of(path: Path, data: bytes) -> ast.Module:
    """Return the syntax tree of a file. Errors: `DataError` with the line that Python cannot read."""
    try:
        return ast.parse(data, str(path))
    except SyntaxError as error:
        line = f" (`{error.text.strip()}`)" if error.text else ""
        raise DataError(f"{path}, line {error.lineno}: {error.msg}{line}. Python cannot read the file.") from None
    except ValueError as error:
        raise DataError(f"{path} is not a Python source file: {error}.") from None


def bound(node: ast.stmt) -> list[tuple[str, bool]]:
    """Return the names that a top-level statement assigns, and whether each is a function or class defined here."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [(node.name, True)]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [(each.id, makes_function(node.value)) for each in targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.ImportFrom):
        return [(each.asname or each.name, False) for each in node.names]
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return []
    inside = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    inside += [handler.body for handler in getattr(node, "handlers", [])]
    return [pair for part in inside for each in part for pair in bound(each)]


def makes_function(value: ast.expr | None) -> bool:
    """Whether an expression makes a function: a lambda, or `partial` of another one."""
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(value, ast.Lambda) or called in ("partial", "functools.partial")


def check(path: Path, only: Sequence[str] = (), limit: float = LIMIT) -> Report:
    """Check the parts of a file.

    The file's code runs with the user's rights, but cannot hang or end this process. Errors: `DataError` for a file
    that cannot be checked: it is missing, has a syntax error, defines no known name, fails on import or runs out of
    time.
    """
    names = names_in(path)
    with tempfile.TemporaryDirectory(prefix="glassformer-check-") as name:
        out = Path(name)
        code = run_child([str(path.resolve()), str(out), str(limit), ",".join(names), ",".join(only)], limit)
        found = out / "found.json"
        if found.is_file():
            report = json.loads(found.read_text("utf-8"))
            if "problem" in report:
                raise DataError(f"{path}: {report['problem']}")
            return Report.of({**report, "file": str(path)})
        stack = out / "stack.txt"
        place = hanging(stack.read_text("utf-8", "replace") if stack.is_file() else "", path.resolve())
        if code is None or place:
            raise DataError(
                f"{path}: its code took longer than {limit:g} s and was stopped{place}. Is there an endless "
                "loop? If the code is only slow, raise --limit SECONDS."
            )
        raise DataError(f"{path}: its code ended the Python process (exit code {code}), so nothing could be checked.")


def run_child(words: list[str], limit: float, module: str = "glassformer.proof.check.child") -> int | None:
    """Return the exit code of the process that runs the learner's code in `module`; None if it had to be killed.

    All processes that it started are killed in any case.
    """
    source = str(Path(__file__).parents[3])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(limit + START)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)
            else:  # Windows, which has no groups of processes
                child.kill()
        child.wait()


def hanging(stack: str, path: Path) -> str:
    """Say from a stack dump which line of the learner's file ran when the time was up. Empty without a dump."""
    if not stack:
        return ""
    found = re.search(rf'File "{re.escape(str(path))}", line (\d+)', stack)
    if not found:
        return " (outside the file itself)"
    number = int(found[1])
    lines = path.read_text("utf-8", "replace").splitlines()
    return f" in line {number} (`{lines[number - 1].strip()}`)" if number <= len(lines) else f" in line {number}"
