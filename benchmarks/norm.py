"""RMS norm as in training, with a gradient written by hand, against its steps under autograd, and torch's norms.

Forward and backward, on the residual stream of a training step and on the queries of its heads. torch's layer norm, one
kernel, does different arithmetic and is included for its time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.fast.norm import FastRMSNorm
from glassformer.nn.norm import RMSNorm

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
    begin("norm: RMSNorm as in training against its steps, and torch's norms", options)
    return finish("norm", list(measure(options.batch, options.device, options.rounds)), options)


def measure(batch: int, device: str, rounds: int) -> Iterator[Row]:
    """Yield one row for each shape."""
    for vectors, width in SHAPES:
        ours, plain = (make(width, EPS).to(device) for make in (FastRMSNorm, RMSNorm))
        weight, bias = ours.weight, torch.zeros(width, device=device, requires_grad=True)
        x = torch.randn(batch * vectors, width, device=device, requires_grad=True)
        upstream = torch.randn_like(x)
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "ours": ours,
            "its steps": plain,
            "F.rms_norm": lambda x, weight=weight: F.rms_norm(x, weight.shape, weight, EPS),
            "F.layer_norm": lambda x, weight=weight, bias=bias: F.layer_norm(x, weight.shape, weight, bias, EPS),
        }
        runs = {name: lambda way=way, x=x, up=upstream: way(x).backward(up) for name, way in ways.items()}
        yield compare({"shape": f"{batch * vectors} x {width}"}, runs, rounds)
