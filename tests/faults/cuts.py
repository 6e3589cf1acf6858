"""Cut a run after a step, resume it to its end, and compare: `python tests/faults/cuts.py --points 199` (R1).

The run has 200 steps, with dropout, warm-up, evaluations, several epochs. What must be equal byte for byte: weights,
optimizer, state, metrics.jsonl, samples.
"""

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.store.folders import step_folder
from glassformer.train.recipe import Recipe
from glassformer.train.run.session import resume, start
from train.examples import assert_same_end, follow, recipe

LENGTH = 200


def long() -> Recipe:
    """A run of `LENGTH` steps, small enough to be repeated 199 times."""
    return recipe(
        training__steps=LENGTH,
        training__accumulate=1,
        training__evaluate_every=25,
        checkpoint__every=0,
        decode__max_new_tokens=3,
    )


def straight(run: Path) -> Path:
    """The run, not cut."""
    follow(start(long(), run))
    return run


def stopped(folder: Path) -> Iterator[tuple[int, Path]]:
    """The run, stopped after every step and gone on with: 199 times over, each time what lies on the disk."""
    run = folder / "stopped"
    session = start(long(), run)
    for step in range(1, LENGTH):
        follow(session, stop_after=step)
        yield step, run
        session = resume(run)
    follow(session)
    yield LENGTH, run


def copied(run: Path, step: int, to: Path) -> Path:
    """A run as it was just after `step`, without older checkpoints but for the best."""
    shutil.copytree(run, to, ignore=lambda folder, names: ["checkpoints"] if Path(folder) == run else [])
    shutil.copytree(step_folder(run, step), step_folder(to, step))
    return to


def check(points: int, folder: Path) -> Iterator[tuple[int, bool]]:
    """For so many steps, spread over all: whether the run that was cut there ends as the one that was not."""
    whole = straight(folder / "whole")
    wanted = {1 + (LENGTH - 2) * number // max(1, points - 1) for number in range(points)}
    for step, run in stopped(folder):
        if step == LENGTH:
            assert_same_end(run, whole)  # cut 199 times, it is still the same run
        elif step in wanted:
            yield step, ends_the_same(copied(run, step, folder / "cut"), whole)
            shutil.rmtree(folder / "cut")


def ends_the_same(run: Path, whole: Path) -> bool:
    """Whether the run, resumed, ends with the bytes of the other."""
    follow(resume(run))
    try:
        assert_same_end(run, whole)
    except AssertionError:
        return False
    return True


def main() -> int:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=LENGTH - 1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):  # what the runs show
        found = dict(check(options.points, Path(folder)))
    print(
        f"{sum(found.values())} of {len(found)} runs that were cut and resumed ended with the bits of one that was not"
    )
    return 0 if all(found.values()) else 3


if __name__ == "__main__":
    sys.exit(main())
