"""Cut anywhere, a run of 200 steps ends with the bits of one that was not cut (R1).

It has dropout, warm-up, evaluations and several epochs; weights, optimizer, state, figures and samples must be equal.
"""

import shutil
from pathlib import Path

import pytest

from glassformer.store.folders import step_folder
from glassformer.train.recipe import Recipe
from glassformer.train.run.session import resume, start
from train.examples import assert_same_end, follow, recipe

pytestmark = pytest.mark.slow
LENGTH = 200


def long() -> Recipe:
    """A run of so many steps, small enough to be repeated 199 times."""
    small = {"training__accumulate": 1, "checkpoint__every": 0, "decode__max_new_tokens": 3}
    return recipe(training__steps=LENGTH, training__evaluate_every=25, **small)


def copied(run: Path, step: int, to: Path) -> Path:
    """A run as it was just after `step`, without older checkpoints but for the best."""
    shutil.copytree(run, to, ignore=lambda folder, names: ["checkpoints"] if Path(folder) == run else [])
    shutil.copytree(step_folder(run, step), step_folder(to, step))
    return to


@pytest.mark.parametrize("every", [25, 1])
def test_cut_at_many_points(tmp_path, every):
    """Runs that are cut once each, at 8 points or at all 199; and one that is cut at all of them."""
    follow(start(long(), whole := tmp_path / "whole"))
    session, run = start(long(), tmp_path / "run"), tmp_path / "run"
    for step in range(1 + every // 3, LENGTH, every):
        follow(session, stop_after=step)
        once = copied(run, step, tmp_path / "once")
        follow(resume(once))
        assert_same_end(once, whole)
        shutil.rmtree(once)
        session = resume(run)
    follow(session)
    assert_same_end(run, whole)
