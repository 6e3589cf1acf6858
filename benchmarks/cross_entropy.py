"""Our label-smoothed cross-entropy against torch's, forward with backward, on the logits of a training step.

Equal work: both compute in float32 whatever the logits' dtype, and loss and gradient are compared before any timing.
`in bfloat16` is torch's on bfloat16 logits as they are, which is cheaper and less exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.train.cross_entropy import cross_entropy

Loss = Callable[[Tensor], Tensor]


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("cross_entropy", __doc__ or "", rounds=15)
    parser.add_argument("--targets", type=int, default=2_000, help="rows of logits (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=8_000, help="columns of logits (default: %(default)s)")
    parser.add_argument("--smoothing", type=float, default=0.1, help="label smoothing (default: %(default)s)")
    options = parser.parse_args(words)
    begin("cross_entropy: ours against torch.nn.functional.cross_entropy, forward + backward", options)
    size = (options.targets, options.vocabulary)
    return finish("cross_entropy", list(measure(size, options.smoothing, options.device, options.rounds)), options)


def measure(size: tuple[int, int], smoothing: float, device: str, rounds: int) -> Iterator[Row]:
    """One row for each dtype of the logits."""
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
    """Both must give the same loss and gradient, or their times say nothing."""
    found: list[tuple[Tensor, Tensor]] = []
    for loss in (ours, theirs):
        value = loss(logits)
        (gradient,) = torch.autograd.grad(value, logits)
        found.append((value.detach(), gradient))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=0.0)
    torch.testing.assert_close(found[0][1], found[1][1])


def step(loss: Loss, logits: Tensor) -> Callable[[], object]:
    """One run: forward and backward."""

    def run() -> None:
        logits.grad = None
        loss(logits).backward()

    return run
