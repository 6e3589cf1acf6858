"""What a checkpoint costs training: steps with a save among them, beside as many without, in turn.

The time with a save ends when the checkpoint is complete on disk, so it is an upper bound of the cost: in a run,
training continues meanwhile. The processor's time includes all the work of a save (copy, checksums, writing) but not
the waiting for the disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import repeat
from pathlib import Path

import torch
from common import Row, Spread, arguments, begin, fail, machine, spread, table, timed

from glassformer import Batch, ModelConfig, StackConfig, Transformer
from glassformer.data.config import DataConfig
from glassformer.store.folders import RunLock
from glassformer.train.loop import train_steps
from glassformer.train.optimizer import build_optimizer
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import prepare
from glassformer.train.run.resumable import Best, Standing
from glassformer.train.run.saving import Saver
from glassformer.train.schedule import Schedule
from glassformer.train.settings import CheckpointConfig, OptimizerConfig, Update

MINUTE = 60.0
MODES = {"in the background": True, "waited for": False}


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = arguments("checkpoint", __doc__ or "", rounds=7)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--layers", type=int, default=5, help="of each stack (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=1024, help="places of a batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=6, help="between two looks at the clock (default: %(default)s)")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="the processor's time instead of the clock's, for a busy machine; with --threads 1",
    )
    options = parser.parse_args(words)
    if options.processor_time and (options.threads != 1 or options.device != "cpu"):
        return fail("--processor-time adds up the time of all threads and of a processor alone. Add --threads 1.")
    begin("checkpoint: steps of training with a save among them, beside steps without", options)
    row, costs = measure(options)
    shares = {name: cost.median / MINUTE for name, cost in costs.items()}
    if options.json:
        figures = {"seconds": {name: asdict(cost) for name, cost in costs.items()}, "share_at_one_a_minute": shares}
        print(json.dumps({"benchmark": "checkpoint", "machine": machine(), "rows": [asdict(row)], **figures}))
        return 0
    print(table([row]))
    for name, cost in costs.items():
        print(f"\nA save {name} costs {cost} s of training: {shares[name]:.2%} of it at one save a minute.")
    return 0


def measure(options: argparse.Namespace) -> tuple[Row, dict[str, Spread]]:
    """Return the times of a stretch of steps, and what each way of saving adds, round by round."""
    stack = StackConfig(d_model=options.d_model, n_heads=4, n_layers=options.layers, d_ff=4 * options.d_model)
    model = Transformer(ModelConfig(options.vocabulary, encoder=stack, decoder=stack)).to(options.device)
    optimizer = build_optimizer(model, OptimizerConfig(), learning_rate=1e-4)
    tokens = torch.randint(8, options.vocabulary, (max(1, options.tokens // 64), 32))
    updates = train_steps(
        model, repeat(Batch(tokens, source=tokens)), optimizer, Schedule("constant", 1e-4, 10**9), Update(clip=1.0)
    )
    clock = time.process_time if options.processor_time else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Callable[[], object]] = {
            name: stretch(updates, options.steps, saver_for(Path(folder), model, optimizer, background))
            for name, background in MODES.items()
        }
        runs["without"] = stretch(updates, options.steps, None)
        for run in runs.values():
            run()
        seconds = {name: list[float]() for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                seconds[name].append(timed(run, 1, clock))
    case: dict[str, str | int] = {
        "parameters": sum(each.numel() for each in model.parameters()),
        "steps": options.steps,
    }
    alone = seconds["without"]
    costs = {name: spread([a - b for a, b in zip(seconds[name], alone, strict=True)]) for name in MODES}
    times = {name: spread([1e3 * each for each in values]) for name, values in seconds.items()}
    return Row(case, times, {}), costs


def stretch(updates: Iterator[object], steps: int, saver: Saver | None) -> Callable[[], object]:
    """Return one run of some steps.

    With a saver, it saves after the first of them and waits for the save at the end.
    """
    standing = Standing(1, Best(), {})

    def run() -> None:
        for number in range(steps):
            next(updates)
            if saver is not None and number == 0:
                list(saver.save(standing))
        if saver is not None:
            list(saver.wait())
            saver.refuse_unsaved()

    return run


def saver_for(folder: Path, model: Transformer, optimizer: torch.optim.Optimizer, background: bool) -> Saver:
    """Return a saver that writes into a folder of its own, as a run does."""
    recipe = Recipe(
        "benchmark", data=DataConfig(task="copy", train_size=100), checkpoint=CheckpointConfig(background=background)
    )
    lock = RunLock(folder / str(background))
    lock.take()
    return Saver(lock, prepare(recipe), model, optimizer, None)
