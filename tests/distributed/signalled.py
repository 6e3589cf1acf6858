"""SIGTERM to one of two processes at many moments: `python tests/distributed/signalled.py --signals 20` (D4).

Moments are calls of any Python function in training, and exchanges with the other process, half of those in their
middle. Both must save the same step and end, by the same exit code.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from distributed.deaths import is_same
from distributed.forked import COUNT, STEPS, Moment, moments, together, whole
from glassformer.store.folders import check, newest, step_folder

KINDS = {"call": ("before",), "exchange": ("within", "before")}
TERMINATED = 128 + signal.SIGTERM


class Outcome(NamedTuple):
    """What became of a run one of whose processes was asked to end."""

    moment: Moment
    steps: list[int]
    """After which each process stopped."""
    saved: bool
    """The newest checkpoint is of that step, and whole."""
    codes: list[int]
    late: float
    """Seconds from the end of the first to that of the last."""
    same: bool
    """Resumed, it ended with the bits of a run that was not stopped."""

    @property
    def good(self) -> bool:
        """As it should be."""
        ended = self.by_signal or (self.codes == [0] * COUNT and self.steps == [STEPS] * COUNT)
        return len(set(self.steps)) == 1 and ended and self.saved and self.same

    @property
    def by_signal(self) -> bool:
        """Whether both ended by it; not so where it came when they had agreed that they are done."""
        return self.codes == [TERMINATED] * COUNT


def outcome(folder: Path, moment: Moment, other: Path) -> Outcome:
    """Send the signal, look at what both did, resume, compare with the run `other`."""
    run, file = folder / "run", other.with_suffix(".toml")
    ends = together(["train", str(file), "--out", str(run)], folder, moment, since="training", strike=signal.SIGTERM)
    steps = [each.counts["step"] for each in ends]
    saved = newest(run).folder == step_folder(run, steps[0])
    check(step_folder(run, steps[0]))
    again = together(["resume", str(run)], folder / "again", None, since="training", strike=0)
    same = all(each.code == 0 for each in again) and is_same(run, other)
    return Outcome(moment, steps, saved, [each.code for each in ends], max(each.late for each in ends), same)


def check_all(signals: int, shards: tuple[bool, ...], folder: Path) -> Iterator[Outcome]:
    """So many signals, one after the other."""
    wholes = {shard: whole(folder, shard, "training") for shard in shards}
    for number, moment in enumerate(moments(signals, {shard: each[1] for shard, each in wholes.items()}, KINDS)):
        yield outcome(folder / str(number), moment, wholes[moment.shard][0])
        shutil.rmtree(folder / str(number))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--no-shard", action="store_true", help="only with a model that both have whole")
    options = parser.parse_args()
    shards = (False,) if options.no_shard else (False, True)
    with tempfile.TemporaryDirectory() as folder:
        found = list(check_all(options.signals, shards, Path(folder)))
    for each in found:
        if not each.good:
            print(each)
    print(
        f"{sum(len(set(each.steps)) == 1 and each.saved for each in found)} of {len(found)} signals to one process had "
        f"both stop after the same step and save it (steps {min(each.steps[0] for each in found)} to "
        f"{max(each.steps[0] for each in found)}); {sum(each.good and each.by_signal for each in found)} ended both by "
        f"it and {sum(each.good and not each.by_signal for each in found)} both at the end of the run, at most "
        f"{max(each.late for each in found):.1f} s apart; {sum(each.same for each in found)} runs ended, resumed, with "
        "the bits of one that was not stopped"
    )
    return 0 if all(each.good for each in found) else 3


if __name__ == "__main__":
    sys.exit(main())
