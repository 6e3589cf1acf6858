"""Our dropout against torch's: forward, and forward with backward, on activations of the size of a training step's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.fast.dropout import FastDropout

WIDTHS = (256, 1024)
"""Of the residual stream, and of the hidden layer of a feed-forward."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("dropout", __doc__ or "", rounds=21)
    parser.add_argument("--p", type=float, default=0.1, help="chance of a zero (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=4096, help="vectors of a batch (default: %(default)s)")
    options = parser.parse_args(words)
    begin("dropout: glassformer.fast.FastDropout against torch.nn.functional.dropout", options)
    shapes = [(options.tokens // share, width) for share in (8, 1) for width in WIDTHS]
    rows = list(measure(shapes, options.p, options.device, options.rounds))
    return finish("dropout", rows, options)


def measure(shapes: Sequence[tuple[int, int]], p: float, device: str, rounds: int) -> Iterator[Row]:
    """Yield one row for each dtype, shape and direction."""
    ours = FastDropout(p).train()
    for dtype in (torch.float32, torch.bfloat16):
        for shape in shapes:
            for backward in (False, True):
                x = torch.randn(shape, dtype=dtype, device=device, requires_grad=backward)
                upstream = torch.randn_like(x)
                case: dict[str, str | int] = {
                    "dtype": str(dtype).removeprefix("torch."),
                    "shape": " x ".join(map(str, shape)),
                    "pass": "forward + backward" if backward else "forward",
                }
                contestants = {
                    "ours": step(ours, x, upstream),
                    "F.dropout": step(lambda x: F.dropout(x, p), x, upstream),
                }
                yield compare(case, contestants, rounds)


def step(function: Callable[[Tensor], Tensor], x: Tensor, upstream: Tensor) -> Callable[[], object]:
    """Return one run: forward, and backward if x requires a gradient."""

    def run() -> None:
        y = function(x)
        if x.requires_grad:
            x.grad = None
            y.backward(upstream)

    return run
