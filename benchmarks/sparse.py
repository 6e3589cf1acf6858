"""The cost of sparse patterns and linear attention by length, beside full attention: time, memory, and their slopes.

Full attention compares every pair, so its time should grow with the square of the length (slope 2 of log time over log
length). A window, dilated or not, reads as many keys at any length: slope 1; linear attention too. Stride and block are
about the root of the length, so a query reads some multiple of that root: slope 1.5. Full attention is run twice, by
the fused kernel and as the equation is written out. Memory is the most that forward and backward hold at once,
including the table of the mask, as torch's allocator reports it: slope 1 for everything that never holds all scores,
which includes the fused kernel, but not where that is given a window as a mask. Lengths go from 256 to 8,192, which
takes minutes on two cores; the output of one such run is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression

import torch
from common import Row, arguments, begin, compare, fail, finish, markdown, peak

from glassformer.base.schemes import Pattern
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
WINDOW = 128
FULL, EQUATION = "full", "equation"
MANY = 4096
"""From this length on, there are at most two rounds: a run takes seconds, and its time hardly varies."""
SLOPE_FROM = 1024
"""The shortest length that a slope is fitted to, if three remain: short runs cost about the same at any length."""
Runs = Mapping[str, Callable[[], object]]


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("sparse", __doc__ or "", rounds=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="queries and keys")
    parser.add_argument("--batch", type=int, default=1, help="sequences (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of a head (default: %(default)s)")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="the processor's time instead of the clock's, for a busy machine; with --threads 1",
    )
    options = parser.parse_args(words)
    if options.processor_time and (options.threads != 1 or options.device != "cpu"):
        return fail("--processor-time adds up the time of all threads and of a processor alone. Add --threads 1.")
    clock = time.process_time if options.processor_time else time.perf_counter
    begin("sparse: patterns and linear attention against full, forward + backward, float32", options)
    rows: list[Row] = []
    for T in options.lengths:
        rounds = options.rounds if T < MANY else min(options.rounds, 2)
        timed = compare({"T": T}, contestants(options, T), rounds, clock=clock)
        # Made again, so that masks are lowered again: the memory of their tables counts too.
        memory = {name: peak(run, options.device) for name, run in contestants(options, T).items()}
        rows.append(Row(timed.case, timed.milliseconds, {}, memory))
    return finish("sparse", rows, options, notes(rows))


def contestants(options: argparse.Namespace, T: int) -> Runs:
    """Return forward and backward at one length, by name. All are causal except global tokens, which look both ways."""
    root = math.isqrt(T)
    masks = {
        FULL: ("softmax", "sdpa", Mask(causal=True)),
        EQUATION: ("softmax", "reference", Mask(causal=True)),
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


def notes(rows: Sequence[Row]) -> list[str]:
    """Return memory, times relative to full attention by the fused kernel, and a line for each contestant."""
    names = [*rows[0].mebibytes]
    others = [name for name in names if name != FULL]
    body = [[str(row.case["T"]), *(f"{row.mebibytes[name]:.1f}" for name in names)] for row in rows]
    found = [markdown(["T", *(f"{name}, MiB" for name in names)], body)]
    body = [[str(row.case["T"]), *(f"{faster(row, name):.2f} ×" for name in others)] for row in rows]
    found.append(
        "How many times as fast as full attention by the fused kernel (above 1: faster):\n\n"
        + markdown(["T", *others], body)
    )
    if len(rows) > 1:
        found.append("\n".join(f"- {line_of(name, rows)}" for name in names))
    return found


def faster(row: Row, name: str, than: str = FULL) -> float:
    """Return how many times as fast a contestant is as another."""
    return row.milliseconds[than].median / row.milliseconds[name].median


def line_of(name: str, rows: Sequence[Row]) -> str:
    """Describe a contestant: its slopes, and from which length on it beats full attention, if at all."""
    fitted = [row for row in rows if int(row.case["T"]) >= SLOPE_FROM]
    fitted = fitted if len(fitted) > 2 else list(rows)
    lengths, last = [int(row.case["T"]) for row in fitted], rows[-1]
    time = slope(lengths, [row.milliseconds[name].median for row in fitted])
    memory = slope(lengths, [row.mebibytes[name] for row in fitted])
    message = f"{name}: slope of time {time:.2f}, of memory {memory:.2f}"
    if name in (FULL, EQUATION):
        return message
    for than, words in ((FULL, "the fused kernel"), (EQUATION, "the equation")):
        won = [int(row.case["T"]) for row in rows if all(faster(r, name, than) > 1 for r in rows[rows.index(row) :])]
        ratio = f"{faster(last, name, than):.2f} × at {last.case['T']:,}"
        message += f"; against {words} " + (f"faster from {won[0]:,} on ({ratio})" if won else f"SLOWER ({ratio})")
    return f"{message}; {last.mebibytes[name] / last.mebibytes[FULL]:.2f} × the fused kernel's memory there"


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent of the length, by least squares over logarithms."""
    return linear_regression([math.log(each) for each in lengths], [math.log(each) for each in values]).slope
