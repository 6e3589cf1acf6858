"""Python in a process of its own, where it finds the sources and the modules of the tests (conftest.py)."""

import subprocess
import sys


def python(*words: object, **how) -> subprocess.CompletedProcess[str]:
    """Run it with these words to its end, and return what it wrote as text; `how` is as for `subprocess.run`."""
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False, **how)


def printed(*words: object, **how) -> str:
    """What it prints, when all went well."""
    ended = python(*words, **how)
    assert ended.returncode == 0, ended.stdout[-1000:] + ended.stderr[-3000:]
    return ended.stdout
