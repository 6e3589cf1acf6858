"""A process killed, or asked to end, at any moment: the others end in time or with it, and nothing is lost (D3, D4)."""

import os

import pytest

from distributed import deaths, signalled
from fresh import printed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def output_of(script: str, *words: str) -> str:
    """What a script prints; it forks, so it must be a process of its own."""
    return printed(script, *words).strip()


@pytest.mark.parametrize(
    ("number", "more"), [(1, ("--no-shard", "--grace", "1")), pytest.param(50, (), marks=pytest.mark.slow)]
)
@pytest.mark.promise
def test_a_killed_process_is_named_and_its_run_goes_on_to_the_same_bits(number, more):
    output = output_of(deaths.__file__, "--kills", str(number), *more)
    assert output.startswith(f"{number} of {number} processes were killed in a run")
    assert f"; {number} were named by the other" in output
    assert "; 0 lost a complete checkpoint; " in output
    assert f"; {number} runs ended, resumed, with the bits" in output


@pytest.mark.slow
@pytest.mark.parametrize(("number", "more"), [(1, ("--no-shard",)), pytest.param(20, (), marks=pytest.mark.slow)])
def test_a_signal_to_one_saves_the_same_step_and_ends_all(number, more):
    output = output_of(signalled.__file__, "--signals", str(number), *more)
    assert output.startswith(f"{number} of {number} signals to one process had both stop after the same step")
    assert f"; {number} runs ended, resumed, with the bits" in output
