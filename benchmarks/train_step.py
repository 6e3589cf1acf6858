"""A training step of our encoder-decoder against torch.nn.Transformer: same sizes, batch, losses and optimizer.

The work is equal, and checked to be: the peer gets our weights, and before any timing both must give the same loss and
the same gradient norm. Both apply dropout at the same places (attention weights, inside the feed-forward, after each
branch, on the embeddings), both clip, both use fused AdamW; bfloat16 is autocast for both.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import torch
from common import Row, arguments, begin, compare, finish
from peer import Peer
from torch import nn

from glassformer import Batch, ModelConfig, StackConfig, Transformer, train_steps
from glassformer.data.tokens.vocabulary import SPECIALS
from glassformer.train.loss import loss_of
from glassformer.train.objective import next_token
from glassformer.train.optimizer import build_optimizer
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig, Update

RATE, CLIP, SMOOTHING = 1e-4, 1.0, 0.1


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("train_step", __doc__ or "", rounds=9)
    parser.add_argument("--batch", type=int, default=128, help="sequences (default: %(default)s)")
    parser.add_argument("--length", type=int, default=16, help="tokens of source and of target (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=8_000, help="tokens known (default: %(default)s)")
    parser.add_argument("--d-model", type=int, default=256, help="width (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=3, help="blocks in each stack (default: %(default)s)")
    options = parser.parse_args(words)
    begin("train_step: our encoder-decoder against torch.nn.Transformer", options)
    return finish("train_step", list(measure(options)), options)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each dtype, without dropout and with it."""
    lengths = [options.length - 2] * options.batch  # <bos> and <eos> are added
    first, last = len(SPECIALS), options.vocabulary
    sources, targets = ([torch.randint(first, last, (n,)).tolist() for n in lengths] for _ in range(2))
    batch = Batch.pairs(sources, targets).to(options.device)
    for precision in ("float32", "bfloat16"):
        for dropout in (0.0, 0.1):
            torch.manual_seed(0)
            ours = build(options, dropout).to(options.device)
            theirs = Peer(ours).to(options.device)
            check_equal(ours, theirs, batch)
            case: dict[str, str | int] = {
                "dtype": precision,
                "dropout": f"{dropout}",
                "batch": f"{options.batch} x {options.length}+{options.length}",
                "parameters": f"{sum(each.numel() for each in ours.parameters()):,}",
            }
            contestants = {
                "ours": our_step(ours, batch, precision),
                "nn.Transformer": their_step(theirs, batch, precision),
            }
            yield compare(case, contestants, options.rounds)


def build(options: argparse.Namespace, dropout: float) -> Transformer:
    """Return a model of the recipes' default shape, with dropout wherever torch has it."""
    stack = StackConfig(
        d_model=options.d_model,
        n_heads=4,
        n_layers=options.layers,
        d_ff=4 * options.d_model,
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=dropout,
    )
    return Transformer(ModelConfig(options.vocabulary, encoder=stack, decoder=stack))


def check_equal(ours: Transformer, theirs: Peer, batch: Batch) -> None:
    """Check that, without dropout, both give the same loss and gradient norm; otherwise their times mean nothing."""
    figures: list[tuple[float, float]] = []
    for model in (ours, theirs):
        model.eval()
        loss = our_loss(ours, batch) if model is ours else theirs.loss(batch, 0.0)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        model.zero_grad(set_to_none=True)
        figures.append((loss.item(), float(norm)))
    torch.testing.assert_close(figures[0], figures[1], rtol=1e-3, atol=1e-5)


def our_loss(model: Transformer, batch: Batch) -> torch.Tensor:
    """Return the mean loss per target, without smoothing."""
    return loss_of(model, batch, next_token).objective / next_token(batch).n_targets


def our_step(model: Transformer, batch: Batch, precision: str) -> Callable[[], object]:
    """Return one update, through the public `train_steps`."""
    schedule = Schedule("constant", peak=RATE, steps=10**9)
    optimizer = build_optimizer(model, OptimizerConfig(), learning_rate=RATE)
    how = Update(clip=CLIP, label_smoothing=SMOOTHING, precision=precision)
    steps = train_steps(model, repeat(batch), optimizer, schedule, how)
    return lambda: next(steps)


def their_step(model: Peer, batch: Batch, precision: str) -> Callable[[], object]:
    """Return one update, as torch's own tutorials write it."""
    device = batch.tokens.device.type
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    narrow = torch.autocast(device, dtype=torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()

    def run() -> float:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        with narrow:
            loss = model.loss(batch, SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return run
