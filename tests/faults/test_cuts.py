"""Cut anywhere, a run of 200 steps ends with the bits of one that was not cut (R1)."""

import pytest

from faults import cuts
from glassformer.train.run.session import resume, start
from train.examples import assert_same_end, follow


@pytest.mark.slow
def test_cut_at_8_points(tmp_path):
    """One run, stopped and gone on with 8 times."""
    session = start(cuts.long(), tmp_path / "run")
    for step in range(9, cuts.LENGTH, 25):
        follow(session, stop_after=step)
        session = resume(tmp_path / "run")
    follow(session)
    assert_same_end(tmp_path / "run", cuts.straight(tmp_path / "whole"))


@pytest.mark.slow
def test_cut_at_every_point(tmp_path):
    """199 runs, each cut once; and one that was cut 199 times."""
    found = dict(cuts.check(cuts.LENGTH - 1, tmp_path))
    assert [step for step, same in found.items() if not same] == []
    assert len(found) == cuts.LENGTH - 1
