"""Killed at any moment, a run loses no complete checkpoint and ends, resumed, with the same bits (R2)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults import kills

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
@pytest.mark.parametrize("number", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.promise
def test_killed_runs_end_the_same(number):
    """In a process of its own, as one with threads must not be forked."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, kills.__file__, "--kills", str(number)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr[-2000:]
    found = re.fullmatch(
        rf"{number} of {number} runs .*; (\d+) were killed .*, (\d+) of them inside a save; "
        r"0 lost a complete checkpoint; at most (\d+) steps .* waits for a save, (\d+) where it does not",
        answer.stdout.strip(),
    )
    assert found, answer.stdout
    assert int(found[1]) >= number * 0.95
    assert int(found[2]) >= number // 4
    assert int(found[3]) <= kills.EVERY
    assert int(found[4]) <= 2 * kills.EVERY  # the save before may still be under way
