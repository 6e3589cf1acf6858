"""Training beside other programs: a step's time with our choices, with one thread, and as OpenMP has it by itself.

Other programs are imitated by processes that count without end. Each contestant trains the recipe `reverse` for a few
steps in a process of its own, as the environment is read when torch is imported; they run in turn, A B C A B C ..., and
the figure is the median of the ratios to one thread in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from common import spread

from glassformer.study.result import markdown

COUNT = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"
SPINS = "GOMP_SPINCOUNT"
CONTESTANTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "one thread": ({}, ["--training.threads", "1"]),
    "ours": ({}, []),
    "all threads, short waits": ({}, ["--training.threads", str(os.cpu_count())]),
    "all threads, OpenMP's waits": ({SPINS: "300000"}, ["--training.threads", str(os.cpu_count())]),
}


@contextmanager
def others(count: int) -> Iterator[None]:
    """Inside the `with`, so many processes keep the processors busy."""
    counting = [subprocess.Popen([sys.executable, "-c", COUNT]) for _ in range(count)]
    try:
        yield
    finally:
        for each in counting:
            each.kill()
            each.wait()


def step_time(name: str, steps: int) -> float:
    """Milliseconds of a training step, the first ones left out."""
    environment, flags = CONTESTANTS[name]
    environment = {each: text for each, text in os.environ.items() if each != "OMP_NUM_THREADS"} | environment
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["train", "reverse", "--out", str(run), "--training.steps", str(steps), "--training.warmup", "1"]
        command = [sys.executable, "-m", "glassformer", *words, "--training.evaluate-every", "0", *flags]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds = [json.loads(line)["seconds"] for line in (run / "timing.jsonl").read_text().splitlines()]
    first = len(seconds) // 4
    return 1000 * (seconds[-1] - seconds[first]) / (len(seconds) - 1 - first)


def main(words: Sequence[str]) -> int:
    """Print a row for each number of busy processes."""
    parser = argparse.ArgumentParser(prog="busy", description=__doc__)
    parser.add_argument("--others", type=int, nargs="*", default=[0, 2, 4, 8], help="busy processes beside it")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS))
    options = parser.parse_args(words)
    rows = []
    for count in options.others:
        with others(count):
            times = [{name: step_time(name, options.steps) for name in options.only} for _ in range(options.rounds)]
        base = options.only[0]
        result = {f"{base}, ms": str(spread([each[base] for each in times]))}
        result |= {name: str(spread([each[name] / each[base] for each in times])) for name in options.only[1:]}
        rows.append({"busy processes": str(count)} | result)
        print(json.dumps(rows[-1] | {"load": os.getloadavg()[0]}), file=sys.stderr, flush=True)
    print(markdown(list(rows[0]), [[*each.values()] for each in rows]))
    return 0
