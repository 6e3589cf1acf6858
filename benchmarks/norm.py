"""Our RMS norm, whose gradient is written by hand, against the same steps under autograd, and torch's norms.

Measured on the residual stream of a training step and on the queries of its heads. torch's layer norm, one kernel, does
different arithmetic and is included for its time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.nn.norm import RMSNorm, rms_norm

EPS = 1e-5
SHAPES = ((256, 128), (256, 512), (1024, 32))
"""Number of vectors, to be multiplied by `--batch`, and their width."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("norm", __doc__ or "", rounds=21)
    parser.add_argument(
        "--batch", type=int, default=8, help="how many times the shapes' vectors (default: %(default)s)"
    )
    options = parser.parse_args(words)
    begin("norm: glassformer.nn.RMSNorm against its steps, and torch's norms", options)
    return finish("norm", list(measure(options.batch, options.device, options.rounds)), options)


def measure(batch: int, device: str, rounds: int) -> Iterator[Row]:
    """Yield one row for each shape and direction."""
    for vectors, width in SHAPES:
        ours = RMSNorm(width, EPS).to(device)
        weight, bias = ours.weight, torch.zeros(width, device=device, requires_grad=True)
        for backward in (False, True):
            x = torch.randn(batch * vectors, width, device=device, requires_grad=backward)
            upstream = torch.randn_like(x)
            ways: dict[str, Callable[[Tensor], Tensor]] = {
                "ours": ours,
                "its steps": lambda x, weight=weight: rms_norm(x, weight, EPS),
                "F.rms_norm": lambda x, weight=weight: F.rms_norm(x, weight.shape, weight, EPS),
                "F.layer_norm": lambda x, weight=weight, bias=bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
            }
            case: dict[str, str | int] = {
                "shape": f"{batch * vectors} x {width}",
                "pass": "forward + backward" if backward else "forward",
            }
            yield compare(case, {name: step(way, x, upstream) for name, way in ways.items()}, rounds)


def step(way: Callable[[Tensor], Tensor], x: Tensor, upstream: Tensor) -> Callable[[], object]:
    """Return one run: forward, and backward if x requires a gradient."""

    def run() -> None:
        with torch.set_grad_enabled(x.requires_grad):
            y = way(x)
            if x.requires_grad:
                y.backward(upstream)

    return run
