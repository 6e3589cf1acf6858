"""Kill one of two processes at many moments, and resume: `python tests/distributed/deaths.py --kills 50` (D3).

Moments are calls of any Python function from the start of the run on, calls to the disk (nearly all of a save) and
exchanges with the other process, half of those in their middle. The first and the last process are killed in turn, with
a model that both have whole and with one that is cut over them.
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

from distributed.forked import COUNT, TIMEOUT, Moment, moments, together, whole
from glassformer.store.folders import check, checkpoints, newest
from glassformer.train.ranks import distributed
from store.faults import CRASHES
from train.examples import final

KINDS = {"call": ("before",), "disk": CRASHES, "exchange": ("within", "before")}


class Outcome(NamedTuple):
    """What became of a run one of whose processes was killed."""

    moment: Moment
    killed: bool
    named: bool
    """The other process ended with exit code 1 and named the one that was killed."""
    late: float
    """Seconds after it."""
    lost: bool
    """A checkpoint that was said to be saved is not there, or is damaged."""
    same: bool
    """Resumed, it ended with the bits of a run that nothing happened to."""

    @property
    def good(self) -> bool:
        """As it should be."""
        return self.killed and self.named and self.late <= TIMEOUT and not self.lost and self.same


def outcome(folder: Path, moment: Moment, other: Path) -> Outcome:
    """Kill, look at what is left, resume, compare with the run `other`."""
    run, file = folder / "run", other.with_suffix(".toml")
    new = ["train", str(file), "--out", str(run), "--overwrite"]
    ends = together(new, folder, moment, since="run", strike=signal.SIGKILL)
    survivor = ends[1 - moment.victim]
    named = survivor.code == 1 and f"Process {moment.victim} of {COUNT} was killed" in survivor.text
    lost = misses(run)
    began = (run / "recipe.toml").exists()
    ends_again = together(["resume", str(run)] if began else new, folder / "again", None, since="run", strike=0)
    same = all(each.code == 0 for each in ends_again) and is_same(run, other)
    if not same:
        print(*(each.text for each in (*ends, *ends_again)), sep="\n")
    return Outcome(moment, ends[moment.victim].code == -signal.SIGKILL, named, survivor.late, lost, same)


def misses(run: Path) -> bool:
    """Whether a checkpoint that was said to be saved is not there; each that is there is whole."""
    message = (run / "log.txt").read_text("utf-8") if (run / "log.txt").exists() else ""
    result = [int(line.split("step-")[-1]) for line in message.splitlines() if ": saved " in line]
    found = newest(run) if run.exists() else None
    for each in checkpoints(run).values():
        check(each)
    last = int(found.folder.name[5:]) if found and found.folder else 0
    return bool(result) and (last < max(result) or bool(found and found.skipped))


def is_same(run: Path, other: Path) -> bool:
    """Whether two runs ended with the same bits; if not, which files differ is printed."""
    ours, theirs = final(run), final(other)
    different = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    if different:
        print(f"{run} differs from {other} in {', '.join(different)}")
    return not different


def check_all(kills: int, shards: tuple[bool, ...], folder: Path) -> Iterator[Outcome]:
    """So many kills, one after the other."""
    wholes = {shard: whole(folder, shard, "run") for shard in shards}
    for number, moment in enumerate(moments(kills, {shard: each[1] for shard, each in wholes.items()}, KINDS)):
        yield outcome(folder / str(number), moment, wholes[moment.shard][0])
        shutil.rmtree(folder / str(number))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--no-shard", action="store_true", help="only with a model that both have whole")
    parser.add_argument("--grace", type=float, default=distributed.GRACE, help="seconds that word is waited for")
    options = parser.parse_args()
    distributed.GRACE = options.grace
    shards = (False,) if options.no_shard else (False, True)
    with tempfile.TemporaryDirectory() as folder:
        found = list(check_all(options.kills, shards, Path(folder)))
    for each in found:
        if not each.good:
            print(each)
    sorts = {kind: sum(each.moment.kind == kind for each in found) for kind in KINDS}
    print(
        f"{sum(each.killed for each in found)} of {len(found)} processes were killed in a run ({sorts['call']} at any "
        f"call, {sorts['disk']} at one to the disk, {sorts['exchange']} at an exchange); "
        f"{sum(each.named for each in found)} were named by the other, at most "
        f"{max(each.late for each in found):.1f} s later; {sum(each.lost for each in found)} lost a complete "
        f"checkpoint; {sum(each.same for each in found)} runs ended, resumed, with the bits of one that was not killed"
    )
    return 0 if all(each.good for each in found) else 3


if __name__ == "__main__":
    sys.exit(main())
