"""Runs `check` on a learner's file in a separate process with a time limit, and reports what is wrong."""

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

from glassformer.base.errors import DataError
from glassformer.proof.check.file import names_in

LIMIT = 60.0
"""Seconds for all of a learner's code. Starting Python and torch does not count."""
START = 120.0
"""Seconds for starting Python and torch."""


def check(path: Path, only: Sequence[str] = (), limit: float = LIMIT) -> dict[str, Any]:
    """Return the report for JSON: `file`, `pieces` and `left_out`; see docs/check.md.

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
            report: dict[str, Any] = json.loads(found.read_text("utf-8"))
            if report["problem"]:
                raise DataError(f"{path}: {report.pop('problem')}")
            return {"file": str(path), **{key: report[key] for key in ("pieces", "left_out")}}
        stack = out / "stack.txt"
        place = hanging(stack.read_text("utf-8", "replace") if stack.is_file() else "", path.resolve())
        if code is None or place:
            raise DataError(
                f"{path}: its code took longer than {limit:g} s and was stopped{place}. Is there an endless "
                "loop? If the code is only slow, raise --limit SECONDS."
            )
        raise DataError(f"{path}: its code ended the Python process (exit code {code}), so nothing could be checked.")


def run_child(words: list[str], limit: float) -> int | None:
    """Return the exit code of the process that runs the learner's code; None if it had to be killed.

    All processes that it started are killed in any case.
    """
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
    """Say from a stack dump which line of the learner's file ran when the time was up. Empty without a dump."""
    if not stack:
        return ""
    found = re.search(rf'File "{re.escape(str(path))}", line (\d+)', stack)
    if not found:
        return " (outside the file itself)"
    number = int(found[1])
    lines = path.read_text("utf-8", "replace").splitlines()
    return f" in line {number} (`{lines[number - 1].strip()}`)" if number <= len(lines) else f" in line {number}"


def exit_code(report: dict[str, Any]) -> int:
    """Return 0 if all properties hold, 2 if a piece could not be run, 3 if a property fails."""
    if any(piece["problem"] for piece in report["pieces"]):
        return 2
    fails = any(each["state"] == "fails" for piece in report["pieces"] for each in piece["properties"])
    return 3 if fails else 0
