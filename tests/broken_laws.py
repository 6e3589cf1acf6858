"""`make laws`: break one law at a time, and see the tests fail that hold it.

The rows are functions in `tests/broken/*.py`. Each takes the place of a function (or constant) of the package while the
tests that it names run, in processes that those start as well; the sources stay as they are. The test that fails then
runs once more, with the law whole: it must pass. Exit codes: 0 all caught, 2 there is no such row, 3 a broken law was
not noticed, or by a test that fails anyway.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "broken"
LIMIT = 300  # seconds for the tests of one row; a row that needs more names too many tests
NOT_ROWS = {"law", "sitecustomize"}

FAILED = re.compile(r"(?:FAILED|ERROR) ([^\[\s]+(?:\[.*?\](?= - |$))?)")
"""A line of pytest's summary, and the test in it, whose parameters may hold anything."""
Row = Callable[[Any], Any]


class Verdict(NamedTuple):
    """`caught`, `MISSED` or `BROKEN` (nothing was shown: tests could not run, or fail anyway); which test, or why."""

    word: str
    detail: str


def all_rows() -> list[Row]:
    """The rows of every file, in the order of the files' names."""
    sys.path.insert(0, str(FOLDER))
    try:
        for file in sorted(FOLDER.glob("*.py")):
            if file.stem not in NOT_ROWS:
                import_module(file.stem)
        return import_module("law").ROWS
    finally:
        sys.path.remove(str(FOLDER))


def name_of(row: Row) -> str:
    """The law that is broken, in words."""
    return row.__name__.replace("_", " ")


def pytest(tests: Sequence[str], root: Path, row: Row | None = None) -> subprocess.CompletedProcess[str]:
    """Run tests, with a law broken in this and every process that they start."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": f"{root / 'src'}"}
    if row is not None:
        environment["BROKEN_LAW"] = f"{row.__code__.co_filename}:{row.__name__}"
        environment["PYTHONPATH"] = f"{FOLDER}{os.pathsep}{root / 'src'}"
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
    )


def judge(row: Row, root: Path = ROOT) -> Verdict:
    """Run the tests of one row with its law broken, and the one that fails with it whole."""
    try:
        answer = pytest(row.tests, root, row)  # pyright: ignore
    except subprocess.TimeoutExpired:
        return Verdict("BROKEN", f"the tests did not end within {LIMIT} s")
    lines = answer.stdout.splitlines()
    failed = [found[1] for line in lines if (found := FAILED.match(line))]
    if answer.returncode == 1 and failed:  # pytest: tests ran and one failed; 2 and above: they did not run
        test = failed[0]
        try:
            whole = pytest([test], root).returncode == 0
        except subprocess.TimeoutExpired:
            whole = False
        return Verdict("caught", test) if whole else Verdict("BROKEN", f"{test} fails with the law whole, too; mend it")
    if answer.returncode == 0:
        return Verdict("MISSED", f"{' '.join(row.tests)} passed")  # pyright: ignore
    last = (lines or answer.stderr.splitlines() or [""])[-1]
    return Verdict("BROKEN", f"pytest ended with {answer.returncode}: {last}")


def main(rows: Sequence[Row], arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Judge the rows asked for, two at a time, and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="WORDS", default="", help="only rows with WORDS in their name or target")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="how many at a time (default 2)")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows if options.k in name_of(row) or options.k in row.target]  # pyright: ignore
    if not chosen:
        print(f"None of {len(rows)} rows has {options.k!r} in its name or target.")
        return 2
    start = time.monotonic()
    missed = 0
    with ThreadPoolExecutor(options.j) as pool:
        for row, verdict in zip(chosen, pool.map(lambda row: judge(row, root), chosen), strict=True):
            missed += verdict.word != "caught"
            print(f"{verdict.word:7} {name_of(row)}  ·  {verdict.detail}", flush=True)
    print(f"{len(chosen)} laws: {len(chosen) - missed} caught, {missed} not, {time.monotonic() - start:.0f} s")
    return 3 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(all_rows()))
