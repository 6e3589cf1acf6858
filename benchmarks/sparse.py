"""What sparse patterns and linear attention cost by length, beside full attention: time, memory, and their slopes.

Full attention compares every pair, so its time should grow with the square of the length (slope 2 of log time over log
length). A window, dilated or not, reads as many keys at any length: slope 1; linear attention too. Stride and block
are about the root of the length, so a query meets some multiple of that root: slope 1.5. Memory is what forward and
backward hold at once, as torch's profiler counts it: slope 1 for what never forms all scores, the fused kernel among
it, but not where it is handed a window as a mask. Lengths of 256 to 2,048 by default; the whole range is
`--lengths 256 512 1024 2048 4096 8192`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from common import Row, arguments, begin, compare, finish, markdown
from torch.profiler import ProfilerActivity, profile

from glassformer.attend import ATTEND, Mask, Pattern

LENGTHS = (256, 512, 1024, 2048)
WINDOW = 128
Runs = Mapping[str, Callable[[], object]]


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("sparse", __doc__ or "", rounds=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="queries and keys")
    parser.add_argument("--batch", type=int, default=1, help="sequences (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of a head (default: %(default)s)")
    options = parser.parse_args(words)
    begin("sparse: patterns and linear attention against full, forward + backward, float32", options)
    rows: list[Row] = []
    memory: list[dict[str, float]] = []
    for T in options.lengths:
        runs = contestants(options, T)
        rows.append(compare({"T": T}, runs, options.rounds))
        memory.append({name: peak(run, options.device) for name, run in runs.items()})
    return finish("sparse", rows, options, notes(rows, memory))


def contestants(options: argparse.Namespace, T: int) -> Runs:
    """Name -> forward and backward at one length; all causal but for global tokens, which look both ways."""
    root = math.isqrt(T)
    masks = {
        "full": ("softmax", "sdpa", Mask(causal=True)),
        "window by sdpa": ("softmax", "sdpa", Mask(causal=True, window=WINDOW)),
        "window": ("softmax", "sparse", Mask(causal=True, window=WINDOW)),
        "dilated": ("softmax", "sparse", Mask(causal=True, pattern=Pattern(window=WINDOW // 4, dilation=4))),
        "stride": ("softmax", "sparse", Mask(causal=True, pattern=Pattern(stride=root))),
        "block": ("softmax", "sparse", Mask(causal=True, pattern=Pattern(block=root))),
        "global + window": ("softmax", "sparse", Mask(pattern=Pattern(window=WINDOW // 2, global_tokens=16))),
        "linear": ("linear", "sums", Mask(causal=True)),
    }
    shape = (options.batch, options.heads, T, options.width)
    q, k, v = (torch.randn(shape, device=options.device, requires_grad=True) for _ in range(3))
    upstream = torch.randn_like(q)

    def step(rule: str, backend: str, mask: Mask) -> Callable[[], object]:
        def run() -> object:
            output = ATTEND[rule][backend](q, k, v, mask, scale=options.width**-0.5)
            return torch.autograd.grad(output, (q, k, v), upstream)

        return run

    return {name: step(*each) for name, each in masks.items()}


def peak(run: Callable[[], object], device: str) -> float:
    """MiB that one run holds at most, beyond what was held before it."""
    if torch.device(device).type != "cpu":
        before = torch.accelerator.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        run()
        return (torch.accelerator.max_memory_allocated() - before) / 2**20
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # else the profiler talks on standard error
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
    held = sorted((each["ts"], each["args"]["Bytes"]) for each in events if each.get("name") == "[memory]")
    return max(accumulated(number for _, number in held)) / 2**20


def accumulated(numbers: Iterator[int]) -> Iterator[int]:
    """The sums so far, from 0."""
    total = 0
    yield total
    for number in numbers:
        total += number
        yield total


def notes(rows: Sequence[Row], memory: Sequence[Mapping[str, float]]) -> list[str]:
    """The table of memory, and one line for each contestant: its slopes."""
    head = ["T", *(f"{name}, MiB" for name in memory[0])]
    body = [
        [str(row.case["T"]), *(f"{each:.1f}" for each in held.values())] for row, held in zip(rows, memory, strict=True)
    ]
    if len(rows) == 1:
        return [markdown(head, body)]
    lengths = [int(row.case["T"]) for row in rows]
    lines = [f"Slopes of log over log between the lengths {lengths[len(lengths) // 2 - 1]} and {lengths[-1]}:"]
    for name in memory[0]:
        time = slope(lengths, [row.milliseconds[name].median for row in rows])
        lines.append(f"- {name}: time {time:.2f}, memory {slope(lengths, [held[name] for held in memory]):.2f}")
    return [markdown(head, body), "\n".join(lines)]


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent that the longer half grows by: short runs cost what calls cost, whatever the length."""
    first = len(lengths) // 2 - 1
    return math.log(values[-1] / values[first]) / math.log(lengths[-1] / lengths[first])
