"""Kill a run with SIGKILL at many moments, resume it, and compare: `python tests/faults/kills.py --kills 200` (R2).

Half of the moments are calls that change the disk, nearly all of them of a save (before, after or half way through the
call), the other half calls of any Python function while the run is trained, all spread evenly: a moment is a count, so
that it is the same one again. Every other run of each half writes its checkpoints in the background. Each run is a
forked process.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from glassformer.store.checkpoint import write_snapshot
from glassformer.store.folders import check, checkpoints, newest
from glassformer.train.recipe import Recipe
from glassformer.train.run.session import resume, start
from store.faults import CRASHES, trapped
from train.examples import assert_same_end, follow, recipe

STEPS, EVERY = 20, 5


class Moment(NamedTuple):
    """When a run is killed: at the call number `at`, of those to the disk or of all functions."""

    kind: str
    at: int
    how: str
    background: bool


class Outcome(NamedTuple):
    """What was left, and what became of it."""

    moment: Moment
    killed: bool
    """The other runs came to their end before the moment did."""
    lost: bool
    """A checkpoint that was said to be saved is not there, or is damaged."""
    repeated: int
    """Steps that were done twice."""
    same: bool
    saving: bool
    """It was killed while a checkpoint was being written, in whichever thread."""


def short(background: bool) -> Recipe:
    """A run with a checkpoint every five steps."""
    return recipe(
        training__steps=STEPS,
        training__evaluate_every=10,
        checkpoint__every=EVERY,
        checkpoint__keep=3,
        checkpoint__background=background,
    )


def count(run: Path) -> dict[tuple[str, bool], int]:
    """How many moments an unhurt run has, of each kind and of either way to save; the last run is left in `run`.

    Those of a run that saves in the background hang a little on how fast the disk is, so a twentieth is left out. One
    run goes before, which loads our C++: its sources are read only once, and the killed processes are copies of this.
    """
    found: dict[tuple[str, bool], int] = {}
    follow(start(short(False), run))
    shutil.rmtree(run)
    for background in (True, False):
        with trapped() as trap:
            follow(start(short(background), run))
        shutil.rmtree(run)
        calls = counted(run, background)
        most = 0.95 if background else 1.0
        found |= {("disk", background): int(most * len(trap.log)), ("any", background): int(most * calls)}
        if background:
            shutil.rmtree(run)
    return found


def counted(run: Path, background: bool) -> int:
    """How many functions of Python an unhurt run calls, in this thread."""
    calls = [0]

    def counting(frame: object, event: str, argument: object) -> None:
        calls[0] += 1

    sys.setprofile(counting)
    follow(start(short(background), run))
    sys.setprofile(None)
    return calls[0]


def moments(kills: int, limits: dict[tuple[str, bool], int]) -> Iterator[Moment]:
    """So many, spread evenly over the run, of both kinds in turn."""
    for number in range(kills):
        kind, background = ("disk", "any")[number % 2], number // 2 % 2 == 1
        at = limits[kind, background] * (number + 1) // (kills + 1)
        yield Moment(kind, at, CRASHES[number // 2 % 3], background)


def saving() -> bool:
    """Whether a thread of this process is writing a checkpoint."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code is write_snapshot.__code__:
                return True
            frame = frame.f_back
    return False


def train_and_die(run: Path, moment: Moment) -> tuple[int, bool]:
    """Train in a forked process until the moment. What `os.waitpid` says of its end, and whether it was `saving`."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child:
        os.close(theirs)
        status = os.waitpid(child, 0)[1]
        with os.fdopen(ours, "rb") as error:
            return status, bool(error.read())
    kill = os.kill

    def tell_and_kill(process: int, number: int) -> None:
        os.write(theirs, b"x" * saving())
        kill(process, number)

    os.kill = tell_and_kill
    try:
        if moment.kind == "disk":
            with trapped(moment.at, moment.how, kills=True):
                follow(start(short(moment.background), run))
        else:
            left = [moment.at]

            def counting(frame: object, event: str, argument: object) -> None:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(counting)
            follow(start(short(moment.background), run))
    finally:
        os._exit(1)


def outcome(run: Path, moment: Moment, whole: Path) -> Outcome:
    """Kill, look at what is left, resume, compare."""
    status, in_save = train_and_die(run, moment)
    killed = os.WIFSIGNALED(status)
    message = (run / "log.txt").read_text() if (run / "log.txt").exists() else ""
    result = [int(line.split("step-")[-1]) for line in message.splitlines() if ": saved " in line]
    found = newest(run) if run.exists() else None
    last = int(found.folder.name[5:]) if found and found.folder else 0
    lost = bool(result) and (last < max(result) or bool(found and found.skipped))
    for folder in checkpoints(run).values():
        check(folder)
    done = trained(run)
    if (run / "recipe.toml").exists():
        follow(resume(run))
    else:
        shutil.rmtree(run, ignore_errors=True)
        follow(start(short(moment.background), run))
    (run / "recipe.toml").write_bytes((whole / "recipe.toml").read_bytes())  # it says what is in the background
    try:
        assert_same_end(run, whole)
    except AssertionError:
        return Outcome(moment, killed, lost, max(0, done - last), False, in_save)
    return Outcome(moment, killed, lost, max(0, done - last), True, in_save)


def trained(run: Path) -> int:
    """The last step that the figures tell of."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
    return max(steps, default=0)


def check_all(kills: int, folder: Path) -> Iterator[Outcome]:
    """So many kills, one after the other."""
    whole = folder / "whole"
    for number, moment in enumerate(moments(kills, count(whole))):
        yield outcome(folder / str(number), moment, whole)
        shutil.rmtree(folder / str(number))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):  # what the runs show
        found = list(check_all(options.kills, Path(folder)))
    for each in found:
        if each.lost or not each.same:
            print(each)
    waited, beside = ([each.repeated for each in found if each.moment.background is b] for b in (False, True))
    print(
        f"{sum(each.same for each in found)} of {len(found)} runs ended with the bits of one that was not killed; "
        f"{sum(each.killed for each in found)} were killed before their end, {sum(each.saving for each in found)} of "
        f"them inside a save; {sum(each.lost for each in found)} lost a complete checkpoint; at most "
        f"{max(waited, default=0)} steps were repeated where training waits for a save, "
        f"{max(beside, default=0)} where it does not"
    )
    return 0 if all(each.same and not each.lost for each in found) else 3


if __name__ == "__main__":
    sys.exit(main())
