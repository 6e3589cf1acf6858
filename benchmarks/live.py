"""What it costs a run in training when the explorer follows it.

A run of `reverse` is trained, and `glassformer explore` serves it. In alternating windows of some seconds, this program
either asks as the page does, for new figures every 3 s and for the roles at the checkpoints every 20 s, or asks for
nothing. A window ends when its last answer has arrived. The progress of training in a window is taken from its own
clock: steps, and seconds between the first of them and the last. Neighbouring windows see the same machine, so other
load affects both kinds. The figure is that of all windows together, with a bootstrap interval over pairs of them. The
one-time work of `explore` before it serves is not included; its first look at a checkpoint, which loads code, is.

Each look at a checkpoint is followed by a rest 500 times as long, and windows without questions count towards that
rest. So the share of looks in the other windows is twice that of a page that stays open.

Every process ends in any case: whatever has not arrived after `--patience` seconds fails the benchmark.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from common import arguments, begin, fail

from glassformer.study.result import markdown

FIGURES, ROLES = 3.0, 20.0
"""Seconds between two requests, as in curves.js and history.js."""
ENDLESS = 1_000_000
"""Steps of the run, which is stopped before."""
DRAWS = 2_000
"""Of the bootstrap."""
GRACE = 10.0
"""Seconds for a process to end after it was told to."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): on Linux, no child process outlives this one, however it ends."""


class Window(NamedTuple):
    """The progress of training in one window."""

    steps: int
    seconds: float


Pair = tuple[Window, Window]
"""A window without requests, and a neighbouring one with requests."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("live", __doc__ or "", rounds=50)
    parser.add_argument("--window", type=float, default=7.0, help="seconds of a window (default: %(default)s)")
    parser.add_argument("--every", type=int, default=500, help="steps to a checkpoint (default: %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=240.0, help="seconds until a checkpoint, or a step (default: %(default)s)"
    )
    options = parser.parse_args(words)
    begin("live: a run in training that the explorer follows", options)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    try:
        with tempfile.TemporaryDirectory() as folder, training(Path(folder), options) as run:
            heard = run.with_name("explorer.txt")
            with process("explore", run, "--port", "0", "--no-open", heard=heard) as explorer:
                follower = Follower(*address_of(explorer, heard, options.patience))
                began, used = time.monotonic(), processor_time(explorer.pid)
                pairs = [pair(run, follower, i % 2 == 0, options) for i in range(options.rounds)]
                share = (processor_time(explorer.pid) - used) / (time.monotonic() - began)
                return report(pairs, share, follower.looks, options)
    except TimeoutError as problem:
        return fail(str(problem))
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def training(folder: Path, options: Namespace) -> Iterator[Path]:
    """Train a run while the context lasts, and yield its folder once it has a checkpoint."""
    run, log = folder / "run", folder / "log.txt"
    settings = {"training.steps": ENDLESS, "checkpoint.every": options.every, "checkpoint.keep": 3}
    settings |= {"training.evaluate-every": options.every, "training.threads": options.threads}
    settings |= {"decode.threads": options.threads}
    given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with process("train", "reverse", "--out", run, *given, heard=log) as trained:
        end = time.monotonic() + options.patience
        while not any(run.glob("checkpoints/step-*")):
            if trained.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"No checkpoint came: {log.read_text()[-500:]}")
            time.sleep(0.1)
        yield run


def pair(run: Path, follower: Follower, first: bool, options: Namespace) -> Pair:
    """Return two windows, with requests in the first one if `first`, else in the second."""
    found = {asks: window(run, follower, asks, options) for asks in ((True, False) if first else (False, True))}
    return found[False], found[True]


def window(run: Path, follower: Follower, asks: bool, options: Namespace) -> Window:
    """Return the progress of one window, from step to step. Errors: `TimeoutError` if no step comes."""
    begun, end = newest(run), time.monotonic() + options.window
    if asks:
        follower.ask_until(end)
    else:
        time.sleep(options.window)
    limit = time.monotonic() + options.patience
    while (last := newest(run)).steps == begun.steps:
        if time.monotonic() > limit:
            raise TimeoutError(f"No step came behind step {begun.steps} within {options.patience:.0f} s.")
        time.sleep(0.1)
    return Window(last.steps - begun.steps, last.seconds - begun.seconds)


class Follower:
    """Makes the requests of a page that shows the curves and the roles over training."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token
        self.since = self.looks = 0

    def ask_until(self, end: float) -> None:
        """Make the requests that are due until then, and return when the last answer has arrived."""
        due = {"metrics": 0.0, "history": 0.0}
        while (now := time.monotonic()) < end:
            if now >= due["metrics"]:
                due["metrics"] = now + FIGURES
                self.since += len(self.ask(f"metrics?since={self.since}").get("lines", ()))
            if now >= due["history"]:
                due["history"] = now + ROLES
                self.looks = len(self.ask("history").get("steps", ())) or self.looks
            time.sleep(0.1)

    def ask(self, what: str) -> dict[str, Any]:
        """Return the server's answer, or nothing if it takes too long: a page would also carry on."""
        options = Request(f"{self.address}/api/{what}", headers={"X-Glassformer-Token": self.token})
        with suppress(OSError), urlopen(options, timeout=ROLES) as answer:
            return json.load(answer)
        return {}


@contextmanager
def process(*words: object, heard: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command line in a separate process, which is ended with the context in any case."""
    command = [sys.executable, "-m", "glassformer", *map(str, words)]
    with heard.open("wb") as out:
        each = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=tied)
    try:
        yield each
    finally:
        with suppress(ProcessLookupError):
            each.terminate()
        try:
            each.wait(GRACE)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


def tied() -> None:
    """Make a new process, before it runs its program, end together with this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def address_of(explorer: subprocess.Popen[bytes], log: Path, patience: float) -> tuple[str, str]:
    """Return the address and the token that `explore` printed."""
    end = time.monotonic() + patience
    while time.monotonic() < end and explorer.poll() is None:
        if found := re.search(r"(http://[^/\s]+)/#token=(\S+)", log.read_text()):
            return found[1], found[2]
        time.sleep(0.1)
    raise TimeoutError(f"glassformer explore gave no address: {log.read_text()[-500:]}")


def newest(run: Path) -> Window:
    """Return the newest step in the run's log, and its seconds."""
    with (run / "timing.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
        lines = file.read().split(b"\n")[:-1]
    last = json.loads(lines[-1]) if lines else {}
    return Window(last.get("step", 0), last.get("seconds", 0.0))


def processor_time(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 if the system does not tell, or the process has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def whole(windows: Sequence[Window]) -> Window:
    """Return the sum of all windows."""
    return Window(sum(each.steps for each in windows), sum(each.seconds for each in windows))


def cost(pairs: Sequence[Pair]) -> float:
    """Return how much longer a step takes while somebody asks, in percent, over all windows."""
    alone, followed = (whole([pair[i] for pair in pairs]) for i in range(2))
    return 100 * (followed.seconds / followed.steps * alone.steps / alone.seconds - 1)


def report(pairs: Sequence[Pair], share: float, looks: int, options: Namespace) -> int:
    """Print the figure and its interval."""
    draw = random.Random(0)
    drawn = sorted(cost(draw.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    low, high = drawn[DRAWS // 40], drawn[-DRAWS // 40]
    figures = {"percent": cost(pairs), "low": low, "high": high, "looks": looks, "explorer": share}
    if options.json:
        print(json.dumps({"benchmark": "live", "pairs": pairs, **figures}))
        return 0
    sides = {name: whole([pair[i] for pair in pairs]) for i, name in enumerate(("left alone", "followed"))}
    rows = [
        [name, f"{side.steps:,}", f"{side.seconds:.1f}", f"{1e3 * side.seconds / side.steps:.2f}"]
        for name, side in sides.items()
    ]
    print(markdown(["", "steps", "seconds", "ms a step"], rows))
    print(f"\nFollowed, a step takes {cost(pairs):.2f} % longer (95 %: {low:.2f} to {high:.2f}; {len(pairs)} pairs).")
    print(f"The explorer took {100 * share:.2f} % of a processor, and looked at {looks} checkpoints.")
    return 0
