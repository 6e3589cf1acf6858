"""Our label-smoothed cross-entropy against torch's, forward with backward, on the logits of a training step.

Equal work: both compute in float32 whatever the logits' dtype, and loss and gradient are compared before any timing.
`in bfloat16` is torch's loss computed in bfloat16, which is cheaper and less exact.

Including the head, with a large vocabulary: `in chunks`, which never holds all logits at once, against `whole`, which
does. Time, and the most memory that forward and backward hold, as torch's allocator reports it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from common import Row, arguments, begin, compare, finish, peak
from torch import Tensor

from glassformer.base.runtime import has_bfloat16
from glassformer.train.cross_entropy import cross_entropy, cross_entropy_of_vectors

Loss = Callable[[Tensor], Tensor]


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("cross_entropy", __doc__ or "", rounds=15)
    parser.add_argument("--targets", type=int, default=2_000, help="rows of logits (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=8_000, help="columns of logits (default: %(default)s)")
    parser.add_argument("--smoothing", type=float, default=0.1, help="label smoothing (default: %(default)s)")
    parser.add_argument("--vectors", type=int, default=4_096, help="rows that a head reads (default: %(default)s)")
    parser.add_argument("--head", type=int, default=50_257, help="tokens of that head (default: %(default)s)")
    parser.add_argument("--d-model", type=int, default=256, help="width of its vectors (default: %(default)s)")
    options = parser.parse_args(words)
    begin("cross_entropy: ours against torch.nn.functional.cross_entropy, forward + backward", options)
    size = (options.targets, options.vocabulary)
    rows = list(measure(size, options.smoothing, options.device, options.rounds))
    with_head = list(measure_head(options))
    notes = [f"{row.case['dtype']}, {row.case['logits']}, with the head: {head_cost(row)}." for row in with_head]
    return finish("cross_entropy", rows if not options.json else [*rows, *with_head], options, notes)


def head_cost(row: Row) -> str:
    """Return time and memory of each, and the ratio of the times."""
    each = [f"{name} {row.milliseconds[name].median:,.0f} ms and {MiB:,.0f} MiB" for name, MiB in row.mebibytes.items()]
    return f"{', '.join(each)}; in chunks is {row.times_as_fast['whole']} times as fast"


def measure_head(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for float32 and one for bfloat16 by autocast: head and loss, forward with backward.

    bfloat16 is left out on machines that emulate it: one product of the head's backward took 200 times as long as in
    float32.
    """
    M, V, D, device = options.vectors, options.head, options.d_model, options.device
    x = torch.randn(M, D, device=device, requires_grad=True)
    weight = (torch.randn(V, D, device=device) * D**-0.5).requires_grad_()
    ids = torch.randint(V, (M,), device=device)

    def run(loss: Callable[[], Tensor], narrow: bool) -> Callable[[], object]:
        def once() -> tuple[Tensor, ...]:
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=narrow):
                value = loss()
            return torch.autograd.grad(value, (x, weight))

        return once

    def whole() -> Tensor:
        return cross_entropy(F.linear(x, weight), ids, options.smoothing)[0]

    def in_chunks() -> Tensor:
        return cross_entropy_of_vectors(x, weight, None, ids, options.smoothing)[0]

    dtypes = [False, True]
    if not has_bfloat16(torch.device(device)):
        print("The head in bfloat16 is left out: this machine emulates it.", file=sys.stderr)
        dtypes.remove(True)
    for narrow in dtypes:
        contestants = {"in chunks": run(in_chunks, narrow), "whole": run(whole, narrow)}
        case: dict[str, str | int] = {
            "dtype": "bfloat16" if narrow else "float32",
            "logits": f"{M:,} x {V:,}",
            "smoothing": f"{options.smoothing}",
        }
        timed = compare(case, contestants, min(options.rounds, 3))
        memory = {name: peak(once, device) for name, once in contestants.items()}
        yield Row(timed.case, timed.milliseconds, timed.times_as_fast, memory)


def measure(size: tuple[int, int], smoothing: float, device: str, rounds: int) -> Iterator[Row]:
    """Yield one row for each dtype of the logits."""
    ids = torch.randint(size[1], size[:1], device=device)

    def ours(logits: Tensor) -> Tensor:
        return cross_entropy(logits, ids, smoothing)[0]

    def wide(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), ids, label_smoothing=smoothing, reduction="sum")

    def narrow(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, ids, label_smoothing=smoothing, reduction="sum")

    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.randn(size, device=device).to(dtype).requires_grad_()
        check_equal(ours, wide, logits)
        contestants = {"ours": step(ours, logits), "F.cross_entropy": step(wide, logits)}
        if dtype == torch.bfloat16:
            contestants["in bfloat16"] = step(narrow, logits)
        case: dict[str, str | int] = {
            "dtype": str(dtype).removeprefix("torch."),
            "logits": f"{size[0]:,} x {size[1]:,}",
            "smoothing": f"{smoothing}",
        }
        yield compare(case, contestants, rounds)


def check_equal(ours: Loss, theirs: Loss, logits: Tensor) -> None:
    """Check that both give the same loss and gradient, without which a comparison of times means nothing."""
    found: list[tuple[Tensor, Tensor]] = []
    for loss in (ours, theirs):
        value = loss(logits)
        (gradient,) = torch.autograd.grad(value, logits)
        found.append((value.detach(), gradient))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=0.0)
    torch.testing.assert_close(found[0][1], found[1][1])


def step(loss: Loss, logits: Tensor) -> Callable[[], object]:
    """Return one run: forward and backward."""

    def run() -> None:
        logits.grad = None
        loss(logits).backward()

    return run
