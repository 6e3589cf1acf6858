"""A layer of attention in training, forward and backward: our C++ against layers whose backend is torch's operators.

Each layer has maps, norms of queries and keys, and rotary positions, as in a small language model, and the same
weights; batches of the same number of tokens at any length. What is left of the ratio is what C++ saves: the maps take
as long in each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import torch
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.nn.attention import Attention
from glassformer.nn.mask import Mask
from glassformer.nn.norm import RMSNorm
from glassformer.nn.positions import Rotation
from glassformer.nn.rules import ATTEND

BACKENDS = {"ours": "auto", "matmul": "matmul", "sdpa": "sdpa"}


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("attention", __doc__ or "", rounds=9)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512], help="tokens of a text")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads (default: %(default)s)")
    parser.add_argument("--width", type=int, default=32, help="width of a head (default: %(default)s)")
    options = parser.parse_args(words)
    begin("attention: a layer in training, our C++ against torch's operators", options)
    return finish("attention", list(measure(options)), options)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each mask and length."""
    for causal in (True, False):
        for length in options.lengths:
            case: dict[str, str | int] = {"mask": "causal" if causal else "none", "length": length}
            yield compare(case, steps(options, length, Mask(causal=causal)), options.rounds)


def steps(options: argparse.Namespace, length: int, mask: Mask) -> dict[str, Callable[[], object]]:
    """Return one forward and backward pass for each backend, once all are seen to give the same gradients."""
    torch.manual_seed(0)
    D = options.heads * options.width
    x = torch.randn(max(1, options.tokens // length), length, D, device=options.device, requires_grad=True)
    angles = torch.randn(length, options.width // 2, device=options.device)
    rotation, upstream = Rotation(angles.cos(), angles.sin()), torch.randn_like(x)
    first = layer(options, "auto")
    made: dict[str, Callable[[], tuple[Tensor, ...]]] = {}
    for name, backend in BACKENDS.items():
        each = layer(options, backend)
        each.load_state_dict(first.state_dict())

        def step(each: Attention = each) -> tuple[Tensor, ...]:
            y = each(x, mask=mask, rotation=rotation)
            return torch.autograd.grad(y, (x, *each.parameters()), upstream)

        made[name] = step
    for expected, *others in zip(*(step() for step in made.values()), strict=True):
        for other in others:
            torch.testing.assert_close(other, expected, rtol=1e-3, atol=1e-3)
    return dict(made)


def layer(options: argparse.Namespace, backend: str) -> Attention:
    """Return a layer with new weights."""
    attend, D = ATTEND["softmax"][backend], options.heads * options.width
    return Attention(D, options.heads, attend, qk_norm=lambda width: RMSNorm(width, 1e-5)).to(options.device)
