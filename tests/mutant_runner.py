"""Do the tests have teeth? Break one thing in a copy of the tree and run the tests that should notice.

The table of what to break is `mutants.py`. Exit codes: 0 all caught, 2 the tests fail without any mutant (or no such
mutant), 3 one was missed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src", "glassformer")
COPIED = ("src", "tests", "benchmarks", "docs", "pyproject.toml", "constraints.txt", "Makefile", "README.md")
LIMIT = 300  # seconds for the tests of one mutant; a row that needs more names too many tests


@dataclass(frozen=True)
class Mutant:
    """One deliberate fault: in `file` (below src/glassformer) the text `before`, which stands there once, is `after`.

    `tests`: the test files (or ids `file::test`) that must fail, separated by spaces; the fewer, the sharper.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str


class Verdict(NamedTuple):
    """What became of a mutant: `caught`, `MISSED` or `BROKEN` (the tests could not run, so nothing was shown)."""

    word: str
    detail: str


def misfits(mutant: Mutant, root: Path = ROOT) -> list[str]:
    """Why a row no longer fits the tree; empty if it does. Costs one read of one file."""
    path = root / PACKAGE / mutant.file
    if not path.is_file():
        return [f"{mutant.file} does not exist"]
    text = path.read_text("utf-8")
    found = [missing for test in mutant.tests.split() if (missing := missing_test(test, root))]
    if not mutant.tests.split():
        found.append("names no tests")
    if (count := text.count(mutant.before)) != 1:
        return [*found, f"`before` stands {count} times in {mutant.file}; it must stand there once"]
    changed = text.replace(mutant.before, mutant.after)
    if changed == text:
        found.append("`after` changes nothing")
    elif path.suffix == ".py":
        try:
            if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text)):
                found.append("`after` changes a comment or the layout only")
        except SyntaxError as error:
            found.append(f"`after` is no Python: {error}")
    return found


def missing_test(test: str, root: Path) -> str | None:
    """What of a file, or of an id `file::test[case]`, is not there; cases are known to pytest alone."""
    file, *names = test.split("::")
    if not (root / file).exists():
        return f"{file} does not exist"
    for name in (each.split("[")[0] for each in names):
        if not re.search(rf"^\s*(def|class) {name}\b", (root / file).read_text("utf-8"), re.M):
            return f"{file} has no {name}"
    return None


def copy_tree(root: Path, to: Path) -> None:
    """Sources and tests, without anything compiled: a stale .pyc would hide the mutation."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
        elif (root / name).is_file():
            shutil.copy2(root / name, to / name)


def pytest(folder: Path, tests: Sequence[str], limit: int | None) -> subprocess.CompletedProcess[str]:
    """Runs `tests` in `folder`; its sources come before an installed copy, also for programs that the tests start."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL
    )


def judge(mutant: Mutant, root: Path = ROOT) -> Verdict:
    """Applies one mutant to a copy of the tree and runs its tests there."""
    if reasons := misfits(mutant, root):
        return Verdict("BROKEN", "; ".join(reasons))
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        copy_tree(root, folder)
        path = folder / PACKAGE / mutant.file
        path.write_text(path.read_text("utf-8").replace(mutant.before, mutant.after), "utf-8")
        try:
            answer = pytest(folder, mutant.tests.split(), LIMIT)
        except subprocess.TimeoutExpired:
            return Verdict("BROKEN", f"the tests did not end within {LIMIT} s")
    lines = answer.stdout.splitlines()
    if answer.returncode == 1:  # pytest: tests ran and one failed; 2 and above: they did not run
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return Verdict("caught", failed[0].split(" - ")[0].split(" ", 1)[1] if failed else lines[-1])
    if answer.returncode == 0:
        return Verdict("MISSED", f"{mutant.tests} passed")
    return Verdict("BROKEN", f"pytest ended with {answer.returncode}: {(lines or [answer.stderr])[-1]}")


def passes_unchanged(mutants: Sequence[Mutant], root: Path) -> bool:
    """Whether all tests named pass without any mutant: a test that fails anyway catches nothing."""
    tests = sorted({test for mutant in mutants for test in mutant.tests.split()})
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy_tree(root, Path(name))
        answer = pytest(Path(name), tests, None)
    if answer.returncode:
        print(answer.stdout, answer.stderr, "The tests fail without any mutant; mend them first.", sep="\n")
    return answer.returncode == 0


def main(rows: Sequence[Mutant], arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Runs the rows asked for, two at a time, and prints one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="NAME", default="", help="only mutants with NAME in their name or file")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="how many at a time (default 2)")
    options = parser.parse_args(arguments)
    chosen = [row for row in rows if options.k in row.name or options.k in row.file]
    if not chosen:
        near = get_close_matches(options.k, [row.name for row in rows], n=3, cutoff=0.0)
        print(f"None of {len(rows)} mutants has {options.k!r} in its name or file. The closest: {'; '.join(near)}.")
        return 2
    start = time.monotonic()
    if not passes_unchanged(chosen, root):
        return 2
    missed = 0
    with ThreadPoolExecutor(options.j) as pool:
        for mutant, verdict in zip(chosen, pool.map(lambda row: judge(row, root), chosen), strict=True):
            missed += verdict.word != "caught"
            print(f"{verdict.word:7} {mutant.file}: {mutant.name}  ·  {verdict.detail}", flush=True)
    print(f"{len(chosen)} mutants: {len(chosen) - missed} caught, {missed} not, {time.monotonic() - start:.0f} s")
    return 3 if missed else 0
