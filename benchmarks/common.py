"""How every benchmark here measures and prints: ours and its peers, in turn, in one process.

If two programs are timed one after the other, whatever else the machine does meanwhile distorts the comparison. So each
round runs all contestants once, A B A B ..., and the figure is the median of the ratios of neighbours, with quartiles:
a slow minute slows both sides of a ratio. Times are medians over the rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles

import torch
from torch.profiler import ProfilerActivity, profile

import glassformer
from glassformer.base.runtime import choose_threads
from glassformer.study.result import markdown

LONG = 1.0
"""If a run takes at least so many seconds, one warm-up is enough."""
Contestants = Mapping[str, Callable[[], object]]
"""Name -> one run of it. The first is ours; the others are compared with it."""


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


@dataclass(frozen=True)
class Row:
    """One case of a benchmark."""

    case: dict[str, str | int]
    milliseconds: dict[str, Spread]
    times_as_fast: dict[str, Spread]
    """Peer -> its time over ours: above 1 ours is faster."""
    mebibytes: dict[str, float] = field(default_factory=dict)
    """Name -> the most memory that one run holds; empty in a benchmark that does not measure memory."""


def compare(
    case: dict[str, str | int],
    contestants: Contestants,
    rounds: int,
    at_least: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
    rest: float = 0.0,
) -> Row:
    """Time the contestants in turn. A run shorter than `at_least` seconds is repeated until it is that long.

    Before each run nothing happens for `rest` seconds: the threads of some libraries are busy waiting after their work.
    """
    repeats = {name: warm_up(run, at_least) for name, run in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(rest)
            seconds[name].append(timed(run, repeats[name], clock))
    ours, *peers = contestants
    ratios = {
        peer: spread([theirs / own for theirs, own in zip(seconds[peer], seconds[ours], strict=True)]) for peer in peers
    }
    row = Row(case, {name: spread([1e3 * each for each in times]) for name, times in seconds.items()}, ratios)
    print(one_line(row), file=sys.stderr, flush=True)  # on stdout the table stands, once all rows are known
    return row


def one_line(row: Row) -> str:
    """Return a row in one line, for whoever waits for the next."""
    times = [f"{name} {times.median:.3f} ms" for name, times in row.milliseconds.items()]
    ratios = [f"{ratio} × over {peer}" for peer, ratio in row.times_as_fast.items()]
    return f"done: {', '.join(map(str, row.case.values()))}: {', '.join([*times, *ratios])}"


def warm_up(run: Callable[[], object], at_least: float) -> int:
    """Run a few times, so that one-time work is not timed, and return how many runs take `at_least` seconds."""
    if timed(run, 1) > LONG:
        return 1
    return max(1, round(at_least / max(timed(run, 2), 1e-9)))


def timed(run: Callable[[], object], repeat: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of one run, as the mean of `repeat`. Pending work of an accelerator is waited for."""
    began = clock()
    for _ in range(repeat):
        run()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return (clock() - began) / repeat


def peak(run: Callable[[], object], device: str) -> float:
    """Return the most memory in MiB that one run holds, beyond what was held before it."""
    if torch.device(device).type != "cpu":
        before = torch.accelerator.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        run()
        return (torch.accelerator.max_memory_allocated() - before) / 2**20
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # otherwise the profiler writes to standard error
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
    held = sorted((each["ts"], each["args"]["Bytes"]) for each in events if each.get("name") == "[memory]")
    return max(accumulated(number for _, number in held)) / 2**20


def accumulated(numbers: Iterator[int]) -> Iterator[int]:
    """Yield the running sums, from 0."""
    total = 0
    yield total
    for number in numbers:
        total += number
        yield total


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(low, median(values), high)


def arguments(name: str, text: str, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark. `rounds` is the default of --rounds."""
    parser = argparse.ArgumentParser(prog=f"run.py {name}", description=text)
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="times each contestant is run (default: %(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="where to compute, as torch names it (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="processor threads (default: as `glassformer` chooses)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    return parser


def begin(name: str, options: argparse.Namespace) -> None:
    """Set threads and random seed, and print what is measured and where."""
    choose_threads(options.threads)
    torch.manual_seed(0)
    if not options.json:
        print(f"\n## {name}\n\n{machine()}\n", flush=True)


def finish(name: str, rows: Sequence[Row], options: argparse.Namespace, notes: Sequence[str] = ()) -> int:
    """Print the table and the notes, or the rows as JSON."""
    if options.json:
        print(json.dumps({"benchmark": name, "machine": machine(), "rows": [asdict(row) for row in rows]}))
        return 0
    print(table(rows))
    for note in notes:
        print(f"\n{note}")
    return 0


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a markdown table: the case, median times, and how many times as fast ours is as each peer."""
    names = list(dict.fromkeys(name for row in rows for name in row.milliseconds))
    peers = list(dict.fromkeys(peer for row in rows for peer in row.times_as_fast))
    head = [*rows[0].case, *(f"{name}, ms" for name in names), *(f"over {peer}" for peer in peers)]
    body = [
        [str(each) for each in row.case.values()]
        + [f"{row.milliseconds[name].median:.3f}" if name in row.milliseconds else "" for name in names]
        + [f"{row.times_as_fast[peer]} ×" if peer in row.times_as_fast else "" for peer in peers]
        for row in rows
    ]
    return markdown(head, body)


def machine() -> str:
    """Return processor, threads and versions on one line, with a warning if the machine is busy."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, glassformer {glassformer.__version__}"
    processors = f"{processor()}, {torch.get_num_threads()} threads of {os.cpu_count()}"
    if torch.accelerator.is_available():
        processors += f", {torch.accelerator.current_accelerator()}"
    busy = ""
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 1.2 * (os.cpu_count() or 1):
        busy = f" -- BUSY: {os.getloadavg()[0]:.0f} processes want {os.cpu_count()} processors, so times are too long"
    return f"{processors}; {platform.system()}, {versions}{busy}"


def processor() -> str:
    """Return the name of the processor, as the system tells it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text("utf-8")) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def fail(message: str) -> int:
    """Print what is wrong, and return the exit code."""
    print(message, file=sys.stderr)
    return 2
