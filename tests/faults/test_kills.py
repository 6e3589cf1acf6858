"""Killed at any moment, a run loses no complete checkpoint and ends, resumed, with the same bits (R2)."""

import os
import re

import pytest

from faults import kills
from fresh import printed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked")
@pytest.mark.parametrize("number", [4, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.promise
def test_killed_runs_end_the_same(number):
    """In a process of its own, as one with threads must not be forked."""
    output = printed(kills.__file__, "--kills", number)
    found = re.fullmatch(
        rf"{number} of {number} runs .*; (\d+) were killed .*, (\d+) of them inside a save; "
        r"0 lost a complete checkpoint; at most (\d+) steps .* waits for a save, (\d+) where it does not",
        output.strip(),
    )
    assert found, answer.stdout
    assert int(found[1]) >= number * 0.95
    assert int(found[2]) >= number // 4
    assert int(found[3]) <= kills.EVERY
    assert int(found[4]) <= 2 * kills.EVERY  # the save before may still be under way
