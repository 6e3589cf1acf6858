"""The attention backends against each other, by length: where the crossing of `attend/auto.py` lies.

The tokens of a batch are constant, as in training, so a longer sequence means fewer of them. `auto` names the backend
that the default would take; a row in which another one is faster than it by a fifth is counted below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from common import Row, arguments, begin, compare, finish
from torch import Tensor

from glassformer.attend import ATTEND, Attend, Mask, pick
from glassformer.attend.auto import MATMUL_UP_TO

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
MASKS = ("none", "causal", "padding")
WORTH_MENTION = 1.2


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("attend", __doc__ or "", rounds=9)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="queries, and as many keys")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="heads (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of a head (default: %(default)s)")
    parser.add_argument("--mask", choices=MASKS, default="none", help="what is hidden (default: %(default)s)")
    options = parser.parse_args(words)
    begin(f"attend: matmul against sdpa and reference, mask: {options.mask}", options)
    sizes = [(max(1, options.tokens // T), options.heads, T, options.width) for T in options.lengths]
    rows = list(measure(sizes, options.mask, options.device, options.rounds))
    return finish("attend", rows, options, [verdict(rows)])


def measure(sizes: Sequence[tuple[int, int, int, int]], mask: str, device: str, rounds: int) -> Iterator[Row]:
    """One row for each dtype, direction and size [B, H, T, K]."""
    for dtype in (torch.float32, torch.bfloat16):
        for backward in (False, True):
            for size in sizes:
                q, k, v = (torch.randn(size, dtype=dtype, device=device, requires_grad=backward) for _ in range(3))
                upstream = torch.randn_like(q)
                case: dict[str, str | int] = {
                    "dtype": str(dtype).removeprefix("torch."),
                    "pass": "forward + backward" if backward else "forward",
                    "B": size[0],
                    "T = S": size[2],
                    "auto": pick(torch.device(device).type, size[2], size[2])[0],
                }
                contestants = {
                    name: step(ATTEND["softmax"][name], (q, k, v), make_mask(mask, size, device), upstream)
                    for name in ("matmul", "sdpa", "reference")
                }
                yield compare(case, contestants, rounds)


def make_mask(name: str, size: tuple[int, int, int, int], device: str) -> Mask:
    """Nothing hidden, the future hidden, or up to a quarter of each row's keys hidden as padding."""
    B, _, T, _ = size
    if name != "padding":
        return Mask(causal=name == "causal")
    lengths = torch.randint(max(1, 3 * T // 4), T + 1, (B,), device=device)
    return Mask(keep=torch.arange(T, device=device) < lengths[:, None])


def step(attend: Attend, qkv: tuple[Tensor, Tensor, Tensor], mask: Mask, upstream: Tensor) -> Callable[[], object]:
    """One run: forward, and backward where q asks for a gradient. The mask is lowered once, as in a model."""
    q, k, v = qkv

    def run() -> None:
        y = attend(q, k, v, mask, scale=q.shape[-1] ** -0.5)
        if q.requires_grad:
            torch.autograd.grad(y, qkv, upstream)

    return run


def verdict(rows: Sequence[Row]) -> str:
    """Where the two backends that `auto` chooses between cross, and what its rule costs in these rows."""
    wrong = [row for row in rows if lost(row) > WORTH_MENTION]
    text = [
        f"`auto` takes matmul up to {MATMUL_UP_TO:,} scores a head (T x S), then sdpa. In {len(wrong)} of {len(rows)} "
        f"rows the other is more than {WORTH_MENTION} times as fast."
    ]
    kinds = dict.fromkeys((row.case["dtype"], row.case["pass"]) for row in rows)
    for dtype, direction in kinds:
        mine = [row for row in rows if (row.case["dtype"], row.case["pass"]) == (dtype, direction)]
        faster = [str(row.case["T = S"]) for row in mine if row.times_as_fast["sdpa"].median > 1.0]
        text.append(f"- {dtype}, {direction}: matmul is faster than sdpa at T = {', '.join(faster) or 'no length'}.")
    return "\n".join(text)


def lost(row: Row) -> float:
    """How many times as fast the backend that `auto` did not take is as the one it took."""
    matmul_wins = row.times_as_fast["sdpa"].median
    return 1.0 / matmul_wins if row.case["auto"] == "matmul" else matmul_wins
