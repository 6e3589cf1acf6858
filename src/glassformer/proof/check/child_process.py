"""`check`: a learner's file is run in a process of its own, within a time limit, and what is wrong in it is named."""

from __future__ import annotations

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
from typing import Any

from glassformer.foundation.errors import DataError
from glassformer.proof.check.file import names_in

LIMIT = 60.0
"""Seconds for all of a learner's code; starting Python and torch does not count."""
START = 120.0
"""Seconds for that start."""


def check(path: Path, only: Sequence[str] = (), limit: float = LIMIT) -> dict[str, Any]:
    """What was found, as JSON has it: `file`, `pieces` and `left_out`; see docs/check.md.

    The file's code runs with the rights of the user, but cannot hang or end this process. Errors: `DataError` for a
    file that cannot be checked: none there, a syntax error, nothing known in it, an error on import, out of time.
    """
    names = names_in(path)
    with tempfile.TemporaryDirectory(prefix="glassformer-check-") as name:
        out = Path(name)
        code = run_child([str(path.resolve()), str(out), str(limit), ",".join(names), ",".join(only)], limit)
        found = out / "found.json"
        if found.is_file():
            report: dict[str, Any] = json.loads(found.read_text("utf-8"))
            if report["problem"]:
                raise DataError(f"{path}: {report.pop('problem')}")
            return {"file": str(path), **{key: report[key] for key in ("pieces", "left_out")}}
        stack = out / "stack.txt"
        place = hanging(stack.read_text("utf-8", "replace") if stack.is_file() else "", path.resolve())
        if code is None or place:
            raise DataError(
                f"{path}: its code took longer than {limit:g} s and was stopped{place}. Is there a loop without an "
                "end? For code that is only slow: --limit SECONDS."
            )
        raise DataError(f"{path}: its code ended Python itself (exit code {code}), so nothing could be checked.")


def run_child(words: list[str], limit: float) -> int | None:
    """Exit code of the process that runs the learner's code; None: it had to be killed, with all it started."""
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "glassformer.proof.check.inside", *words],
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
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def hanging(stack: str, path: Path) -> str:
    """Where in the learner's file the time ran out, from a dump of the stack; empty where nothing was dumped."""
    if not stack:
        return ""
    found = re.search(rf'File "{re.escape(str(path))}", line (\d+)', stack)
    if not found:
        return " (outside the file itself)"
    number = int(found[1])
    lines = path.read_text("utf-8", "replace").splitlines()
    return f" in line {number} (`{lines[number - 1].strip()}`)" if number <= len(lines) else f" in line {number}"


def exit_code(report: dict[str, Any]) -> int:
    """0: all holds; 2: something could not be run; 3: a property fails."""
    if any(piece["problem"] for piece in report["pieces"]):
        return 2
    fails = any(each["state"] == "fails" for piece in report["pieces"] for each in piece["properties"])
    return 3 if fails else 0
