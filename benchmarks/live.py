"""What it costs a run in training that the explorer follows it.

A run of `reverse` is trained for `--begin` steps, once. Each stretch goes on with a copy of it for `--steps` more, in
turns left alone and followed: `glassformer explore` serves the copy, and from its first step on a thread of this
program asks as the page does, for new figures every 3 s and for the roles at the checkpoints every 20 s. What `explore`
does before it serves, once, is no part of it. A stretch takes what the run's own clock says from its first step to its
last, and the processor time of its process between; ratios are of the two stretches of a round. Where other programs
run, too, both are drawn out, the processor time less; the explorer's own share is not.

Every process has an end of its own: what has not ended after `--patience` seconds is ended, and the benchmark fails.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

from common import arguments, begin, fail

from glassformer.study.table import markdown

FIGURES, ROLES = 3.0, 20.0
"""Seconds between two questions, as in curves.js and history.js."""
GRACE = 10.0
"""Seconds that a process has to end after it was told to."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2): on Linux no process outlives this one, however it ends."""


@dataclass(frozen=True)
class Stretch:
    """One stretch of training, in seconds."""

    clock: float
    processor: float
    explorer: float = 0.0
    """Processor time of the explorer meanwhile."""
    looks: int = 0
    """Checkpoints whose roles it had found by the end."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("live", __doc__ or "", rounds=3)
    parser.add_argument("--begin", type=int, default=175, help="steps before the first stretch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=700, help="of a stretch (default: %(default)s)")
    parser.add_argument("--every", type=int, default=175, help="steps to a checkpoint (default: %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=240.0, help="seconds a stretch may take (default: %(default)s)"
    )
    options = parser.parse_args(words)
    begin("live: a run in training that the explorer follows", options)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    try:
        with tempfile.TemporaryDirectory() as folder:
            begun = prepared(Path(folder), options)
            found = [
                [stretch(begun, followed, options) for followed in ((False, True), (True, False))[i % 2]]
                for i in range(options.rounds)
            ]
    except TimeoutError as problem:
        return fail(str(problem))
    finally:
        signal.signal(signal.SIGTERM, before)
    rounds = [pair if i % 2 == 0 else pair[::-1] for i, pair in enumerate(found)]
    return told([(alone, followed) for alone, followed in rounds], options)


def prepared(folder: Path, options: Namespace) -> Path:
    """A run of so many steps."""
    run = folder / "run"
    settings = {"training.steps": options.begin, "checkpoint.every": options.every, "checkpoint.keep": 3}
    settings |= {"training.evaluate-every": options.every, "training.threads": options.threads}
    given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with process("train", "reverse", "--out", run, *given, heard=folder / "log.txt") as training:
        ended(training, options.patience, folder / "log.txt")
    return run


def stretch(begun: Path, followed: bool, options: Namespace) -> Stretch:
    """Go on with a copy of the run, followed or not."""
    run = begun.with_name("copy")
    shutil.copytree(begun, run)
    try:
        if not followed:
            return trained(run, options, alone)
        with process("explore", run, "--port", "0", "--no-open", heard=run / "explorer.txt") as explorer:
            follower = Follower(*address_of(explorer, run / "explorer.txt", options.patience))
            before = processor_time(explorer.pid)
            try:
                found = trained(run, options, follower.start)
                used = processor_time(explorer.pid) - before
            finally:
                follower.ended.set()
        return Stretch(found.clock, found.processor, used, follower.looks)
    finally:
        shutil.rmtree(run)


def trained(run: Path, options: Namespace, begins: Callable[[], None]) -> Stretch:
    """So many steps more; `begins` is called after the first."""
    last, log = options.begin + options.steps, run / "training.txt"
    with process(
        "resume", run, "--training.steps", str(last), "--allow-change", "training.steps", heard=log
    ) as training:
        end = time.monotonic() + options.patience
        began, used, at = 0, 0.0, 0
        while at < last:
            if training.poll() is not None and newest(run)[0] < last:
                raise TimeoutError(f"The training ended at step {newest(run)[0]} of {last}: {log.read_text()[-500:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"Step {last} did not come within {options.patience:.0f} s; step {at} did.")
            at = newest(run)[0]
            used = processor_time(training.pid) or used
            if at > options.begin and not began:
                began, before = at, used
                begins()
            time.sleep(0.1)
        first, final = seconds_at(run, began), seconds_at(run, last)
        ended(training, options.patience, log)
    scale = (last - options.begin - 1) / max(1, last - began)  # the first steps pass before they are seen
    return Stretch(final - first if began == options.begin + 1 else (final - first) * scale, (used - before) * scale)


def alone() -> None:
    """Nobody follows."""


class Follower(threading.Thread):
    """Asks the explorer as the page does that shows the curves and the roles over training, until it is `ended`."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(daemon=True)
        self.address, self.token = address, token
        self.looks = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Ask what is due."""
        since, due = 0, {"metrics": 0.0, "history": 0.0}
        while not self.ended.wait(0.1):
            now = time.monotonic()
            if now >= due["metrics"]:
                due["metrics"] = now + FIGURES
                since += len(self.ask(f"metrics?since={since}").get("lines", ()))
            if now >= due["history"]:
                due["history"] = now + ROLES
                self.looks = len(self.ask("history").get("steps", ())) or self.looks

    def ask(self, what: str) -> dict[str, Any]:
        """An answer of the server; nothing where it takes too long, as a page would go on, too."""
        asked = Request(f"{self.address}/api/{what}", headers={"X-Glassformer-Token": self.token})
        with suppress(OSError), urlopen(asked, timeout=ROLES) as answer:
            return json.load(answer)
        return {}


@contextmanager
def process(*words: object, heard: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command line in a process of its own, which is gone when this ends, whatever happened."""
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
    """In a new process, before its program: it ends with this one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def ended(each: subprocess.Popen[bytes], patience: float, log: Path) -> None:
    """Wait for the end of a process. Errors: `TimeoutError` where it does not come, or is not a good one."""
    try:
        code = each.wait(patience)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{each.args} did not end within {patience:.0f} s.") from None
    if code:
        raise TimeoutError(f"{each.args} ended with {code}: {log.read_text()[-500:]}")


def address_of(explorer: subprocess.Popen[bytes], log: Path, patience: float) -> tuple[str, str]:
    """What `explore` printed."""
    end = time.monotonic() + patience
    while time.monotonic() < end and explorer.poll() is None:
        if found := re.search(r"(http://[^/\s]+)/#token=(\S+)", log.read_text()):
            return found[1], found[2]
        time.sleep(0.1)
    raise TimeoutError(f"glassformer explore gave no address: {log.read_text()[-500:]}")


def newest(run: Path) -> tuple[int, float]:
    """The newest step that the run has told of, and its seconds."""
    with (run / "timing.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
        lines = file.read().split(b"\n")[:-1]
    told = json.loads(lines[-1]) if lines else {}
    return told.get("step", 0), told.get("seconds", 0.0)


def seconds_at(run: Path, step: int) -> float:
    """When a step was done, by the clock of the training process that did it last."""
    lines = map(json.loads, (run / "timing.jsonl").read_text("utf-8").splitlines())
    return [line["seconds"] for line in lines if line["step"] == step][-1]


def processor_time(pid: int) -> float:
    """Seconds that a process has had of all processors; 0 where the system does not tell, or it has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def told(rounds: list[tuple[Stretch, Stretch]], options: Namespace) -> int:
    """The table."""
    costs = {
        name: sorted(
            100 * (getattr(followed, name) / max(1e-9, getattr(alone, name)) - 1) for alone, followed in rounds
        )
        for name in ("clock", "processor")
    }
    share = median(100 * followed.explorer / followed.clock for _, followed in rounds)
    if options.json:
        print(
            json.dumps({"benchmark": "live", "rounds": [[asdict(a), asdict(b)] for a, b in rounds], "percent": costs})
        )
        return 0
    rows = [
        [
            {"clock": "the run's clock", "processor": "its processor time"}[name],
            f"{median(getattr(alone, name) for alone, _ in rounds):.1f}",
            f"{median(getattr(followed, name) for _, followed in rounds):.1f}",
            f"{median(each):.1f} ({each[0]:.1f} to {each[-1]:.1f}) %",
        ]
        for name, each in costs.items()
    ]
    print(markdown(["", "alone, s", "followed, s", "longer by"], rows))
    looks = median(followed.looks for _, followed in rounds)
    print(f"\nThe explorer took {share:.1f} % of a processor, and looked at {looks:g} checkpoints.")
    return 0
