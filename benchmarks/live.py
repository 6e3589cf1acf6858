"""What it costs a run in training that the explorer follows it.

A run of `reverse` trains with all threads and a checkpoint every few seconds. `glassformer explore` serves it, and in
every second stretch of `--seconds` this program asks as the page does that shows the curves and the roles over
training: new figures every 3 s, the roles at new checkpoints every 20 s. A stretch's speed is its steps over its
seconds, by the run's own clock; the ratio is of neighbours.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from common import arguments, begin, fail

from glassformer.study.table import markdown

FIGURES, ROLES = 3.0, 20.0
"""Seconds between two questions, as in curves.js and history.js."""
PATIENCE = 120.0


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("live", __doc__ or "", rounds=4)
    parser.add_argument("--seconds", type=float, default=25.0, help="of a stretch (default: %(default)s)")
    options = parser.parse_args(words)
    begin("live: a run in training that the explorer follows", options)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        every = ["--checkpoint.every", "50", "--training.evaluate-every", "0", "--training.steps", "1000000"]
        training = started("train", "reverse", "--out", str(run), "--training.threads", str(options.threads), *every)
        try:
            found = stretches(run, options)
        except TimeoutError as problem:
            return fail(str(problem))
        finally:
            training.terminate()
            training.wait()
    return told(found, options)


def started(*words: str) -> subprocess.Popen[str]:
    """The command line, in a process of its own."""
    heard = subprocess.PIPE if words[0] == "explore" else subprocess.DEVNULL
    command = [sys.executable, "-m", "glassformer", *words]
    return subprocess.Popen(command, stdout=heard, stderr=subprocess.DEVNULL, text=True)


def stretches(run: Path, options: Namespace) -> list[tuple[float, float]]:
    """Steps a second of each pair of stretches: left alone, and followed."""
    wait_for(lambda: any(run.glob("checkpoints/step-*/MANIFEST.json")), "the first checkpoint")
    explorer = started("explore", str(run), "--port", "0", "--no-open")
    try:
        address, token = address_of(explorer)
        ask(address, token, "history")  # what was there before is looked at now
        bounds = [clock(run)]
        for i in range(2 * options.rounds):
            follow(address, token, options.seconds) if i % 2 else time.sleep(options.seconds)
            bounds.append(clock(run, after=bounds[-1][0]))
    finally:
        explorer.terminate()
        explorer.wait()
    speeds = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(bounds)]
    return list(zip(speeds[::2], speeds[1::2], strict=True))


def follow(address: str, token: str, seconds: float) -> None:
    """Ask as the page does."""
    began, figures, roles, since = time.monotonic(), 0.0, 0.0, 0
    while (now := time.monotonic() - began) < seconds:
        if now >= figures:
            since += len(ask(address, token, f"metrics?since={since}")["lines"])
            figures += FIGURES
        if now >= roles:
            ask(address, token, "history")
            roles += ROLES
        time.sleep(0.1)


def ask(address: str, token: str, what: str) -> dict[str, list[object]]:
    """An answer of the server."""
    with urlopen(Request(f"{address}/api/{what}", headers={"X-Glassformer-Token": token}), timeout=PATIENCE) as answer:
        return json.load(answer)


def address_of(explorer: subprocess.Popen[str]) -> tuple[str, str]:
    """What `explore` printed. Errors: `TimeoutError` where it printed none."""
    assert explorer.stdout is not None
    for line in explorer.stdout:
        if found := re.search(r"(http://[^/\s]+)/#token=(\S+)", line):
            return found[1], found[2]
    raise TimeoutError("glassformer explore ended without an address.")


def clock(run: Path, after: int = 0) -> tuple[int, float]:
    """The newest step, one behind `after`, and the seconds of training until then."""
    newest: dict[str, float] = {}

    def went_on() -> bool:
        whole, _, _ = (run / "timing.jsonl").read_text("utf-8").rpartition("\n")
        newest.update(json.loads(whole.rpartition("\n")[2]) if whole else {})
        return newest.get("step", 0) > after

    wait_for(went_on, f"a step behind {after}")
    return int(newest["step"]), newest["seconds"]


def wait_for(done: Callable[[], bool], what: str) -> None:
    """Until it is true. Errors: `TimeoutError`."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {PATIENCE:.0f} s.")
        time.sleep(0.2)


def told(found: list[tuple[float, float]], options: Namespace) -> int:
    """The table."""
    costs = sorted(100 * (alone / followed - 1) for alone, followed in found)
    if options.json:
        print(json.dumps({"benchmark": "live", "steps_a_second": found, "cost_percent": costs}))
        return 0
    row = [f"{median(a for a, _ in found):.1f}", f"{median(b for _, b in found):.1f}"]
    row.append(f"{median(costs):.1f} ({costs[0]:.1f} to {costs[-1]:.1f}) %")
    print(markdown(["steps/s alone", "steps/s followed", "it takes longer by"], [row]))
    return 0
