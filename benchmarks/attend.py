"""Compares the attention backends by length, to find where `nn/rules.py` should switch between them.

Three cases: forward, and forward with backward, over whole sequences in batches with the same number of tokens at any
length, as in training; and one query over a growing cache, as in decoding. `auto` names the backend that the default
would take. Rows where the other backend is faster by more than a fifth are counted below the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import torch
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.nn.attention import Attend
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND, MATMUL_UP_TO, pick

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
MASKS = ("none", "causal", "padding")
DECODED = 128  # sequences decoded together, as in the recipes
WORTH_MENTION = 1.2


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("attend", __doc__ or "", rounds=9)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="keys, and in training as many queries")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of a head (default: %(default)s)")
    parser.add_argument("--mask", choices=MASKS, default="none", help="what is hidden (default: %(default)s)")
    options = parser.parse_args(words)
    begin(f"attend: matmul against sdpa and reference, mask: {options.mask}", options)
    rows = list(measure(options))
    return finish("attend", rows, options, [verdict(rows)])


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each dtype, case and length."""
    for dtype in (torch.float32, torch.bfloat16):
        for use in ("forward", "forward + backward", "decoding"):
            for S in options.lengths:
                T = 1 if use == "decoding" else S
                B = DECODED if use == "decoding" else max(1, options.tokens // S)
                yield measure_one(options, dtype, use, (B, T, S))


def measure_one(options: argparse.Namespace, dtype: torch.dtype, use: str, size: tuple[int, int, int]) -> Row:
    """Time the three backends on one case."""
    B, T, S = size
    shapes = [(B, options.heads, length, options.width) for length in (T, S, S)]
    learns = use == "forward + backward"
    q, k, v = (torch.randn(each, dtype=dtype, device=options.device, requires_grad=learns) for each in shapes)
    upstream = torch.randn_like(q)
    case: dict[str, str | int] = {
        "dtype": str(dtype).removeprefix("torch."),
        "use": use,
        "B": B,
        "T": T,
        "S": S,
        "auto": pick(q.device.type, T, S)[0],
    }
    contestants = {
        name: step(ATTEND["softmax"][name], (q, k, v), make_mask(options.mask, B, S, options.device), upstream)
        for name in ("matmul", "sdpa", "reference")
    }
    return compare(case, contestants, options.rounds)


def make_mask(name: str, B: int, S: int, device: str) -> Mask:
    """Return a mask that hides nothing, the future, or up to a quarter of each row's keys as padding."""
    if name != "padding":
        return Mask(causal=name == "causal")
    lengths = torch.randint(max(1, 3 * S // 4), S + 1, (B,), device=device)
    return Mask(keep=torch.arange(S, device=device) < lengths[:, None])


def step(attend: Attend, qkv: tuple[Tensor, Tensor, Tensor], mask: Mask, upstream: Tensor) -> Callable[[], object]:
    """Return one run: forward, and backward if q requires a gradient. The mask is lowered once, as in a model."""
    q, k, v = qkv

    def run() -> None:
        y = attend(q, k, v, mask, scale=q.shape[-1] ** -0.5)
        if q.requires_grad:
            torch.autograd.grad(y, qkv, upstream)

    return run


def verdict(rows: Sequence[Row]) -> str:
    """Say where the two backends that `auto` chooses between cross, and what its rule costs in these rows."""
    wrong = [row for row in rows if lost(row) > WORTH_MENTION]
    text = [
        f"`auto` takes matmul up to {MATMUL_UP_TO:,} scores a head (T x S), then sdpa. In {len(wrong)} of {len(rows)} "
        f"rows the other is more than {WORTH_MENTION} times as fast."
    ]
    for kind in dict.fromkeys((row.case["dtype"], row.case["use"]) for row in rows):
        mine = [row for row in rows if (row.case["dtype"], row.case["use"]) == kind]
        faster = [str(row.case["S"]) for row in mine if row.times_as_fast["sdpa"].median > 1.0]
        text.append(f"- {kind[0]}, {kind[1]}: matmul is faster than sdpa at S = {', '.join(faster) or 'no length'}.")
    return "\n".join(text)


def lost(row: Row) -> float:
    """Return how many times as fast the backend that `auto` did not take is as the one it took."""
    matmul_wins = row.times_as_fast["sdpa"].median
    return 1.0 / matmul_wins if row.case["auto"] == "matmul" else matmul_wins
