"""The estimate of `glassformer train --dry-run` beside the peak memory of training, for 12 configurations.

Each row is a process of its own: it notes what it holds before the model is made (VmRSS, from Linux), trains six steps
on batches of one size, and notes the most that it held (VmHWM). The difference is the measured value. glibc's heap, by
default, keeps freed pieces, so memory is measured twice: with MALLOC_MMAP_THRESHOLD_=65536, under which freed memory
returns to the system and only the tensors are seen, and with the default. The estimate is of the first. Linux only.
Times are not measured.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from common import arguments, begin, fail, machine, markdown

from glassformer import Batch, ModelConfig, Schedule, StackConfig, Transformer, train_steps
from glassformer.base.runtime import choose_threads
from glassformer.nn.outputs import Classify
from glassformer.train.objective import objective_for
from glassformer.train.optimizer import build_optimizer
from glassformer.train.run.outlook import THRESHOLD, estimate
from glassformer.train.settings import OptimizerConfig, Update

BOUND = 0.15
STEPS = 6
CASES: tuple[Mapping[str, object], ...] = (
    {"shape": "encoder", "d_model": 128, "layers": 4, "vocab": 1000, "rows": 16, "length": 64},
    {"shape": "encoder", "d_model": 256, "layers": 3, "vocab": 1000, "rows": 8, "length": 64, "precision": "bfloat16"},
    {"shape": "encoder", "d_model": 256, "layers": 4, "vocab": 1000, "rows": 8, "length": 128, "recompute": 1},
    {"shape": "decoder", "d_model": 256, "layers": 4, "vocab": 4000, "rows": 8, "length": 64},
    {"shape": "decoder", "d_model": 256, "layers": 4, "vocab": 4000, "rows": 8, "length": 64, "precision": "bfloat16"},
    {"shape": "decoder", "d_model": 256, "layers": 4, "vocab": 500, "rows": 16, "length": 64, "accumulate": 2},
    {"shape": "decoder", "d_model": 192, "layers": 6, "vocab": 500, "rows": 8, "length": 128, "recompute": 2},
    {"shape": "encoder-decoder", "d_model": 256, "layers": 3, "vocab": 1000, "rows": 32, "length": 16},
    {"shape": "encoder-decoder", "d_model": 256, "layers": 3, "vocab": 8000, "rows": 16, "length": 24},
    {
        "shape": "encoder-decoder",
        "d_model": 512,
        "layers": 2,
        "vocab": 4000,
        "rows": 16,
        "length": 16,
        "precision": "bfloat16",
    },
    {"shape": "encoder-decoder", "d_model": 256, "layers": 4, "vocab": 1000, "rows": 32, "length": 24, "recompute": 1},
    {"shape": "classify", "d_model": 128, "layers": 2, "vocab": 8000, "rows": 64, "length": 32, "dropout": 0.3},
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark, or one row of it with --case."""
    parser = arguments("memory", __doc__ or "", rounds=1)
    parser.add_argument("--case", type=int, default=None, help="one configuration, in this process (0 to 11)")
    options = parser.parse_args(words)
    if not Path("/proc/self/clear_refs").exists():
        return fail("What a process held at most is read from Linux's /proc, which is not here.")
    if options.case is not None:
        choose_threads(options.threads)
        print(json.dumps(row(CASES[options.case])))
        return 0
    begin("memory: estimate and peak, MiB", options)
    head = ["case", "estimate", "measured", "estimate / measured", "measured, heap as it is"]
    body: list[list[str]] = []
    worst = 0.0
    for number in range(len(CASES)):
        alone, as_is = (child(number, options.threads, own) for own in ({THRESHOLD: "65536"}, {}))
        ratio = alone["estimate"] / alone["measured"]
        worst = max(worst, abs(ratio - 1))
        sizes = [f"{each / 2**20:.1f}" for each in (alone["estimate"], alone["measured"])]
        body.append([words_of(CASES[number]), *sizes, f"{ratio:.3f}", f"{as_is['measured'] / 2**20:.1f}"])
        print(" | ".join(body[-1]), file=sys.stderr, flush=True)
    print(json.dumps([dict(zip(head, each, strict=True)) for each in body]) if options.json else markdown(head, body))
    if options.json:
        return 0 if worst <= BOUND else 3
    print(f"\nFarthest from what was measured: {worst:.1%} (bound {BOUND:.0%}).\n\n{machine()}")
    return 0 if worst <= BOUND else 3


def child(number: int, threads: int | None, own: Mapping[str, str]) -> dict[str, int]:
    """Measure one row in a fresh process."""
    environment = {name: value for name, value in os.environ.items() if name != THRESHOLD} | dict(own)
    command = [sys.executable, __file__, "--case", str(number), "--threads", str(threads or 1)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(case: Mapping[str, object]) -> dict[str, int]:
    """Return bytes: the estimate, and the most that this process held beyond what it held before."""
    for more in ({}, {"precision": "bfloat16"}, {"recompute": 1}):  # so that libraries are loaded and initialised
        train(CASES[0] | {"d_model": 32, "layers": 1, "rows": 4, "length": 8} | more)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to what is held now
    before = status("VmRSS")
    model, batch, optimizer, how = train(case)
    measured = status("VmHWM") - before
    return {"estimate": estimate(model, batch, objective_for(model), optimizer, how).peak, "measured": measured}


def train(case: Mapping[str, object]) -> tuple[Transformer, Batch, torch.optim.Optimizer, Update]:
    """Train six steps of a configuration."""
    model, batch = Transformer(config(case)), data(case)
    optimizer = build_optimizer(model, OptimizerConfig(), learning_rate=1e-3)
    how = Update(**{name: case[name] for name in ("precision", "accumulate", "recompute") if name in case})
    for _ in train_steps(model, [batch] * STEPS, optimizer, Schedule("constant", 1e-3, STEPS), how):
        pass
    return model, batch, optimizer, how


def config(case: Mapping[str, object]) -> ModelConfig:
    """Return the model of a configuration: heads of width 32, d_ff four times d_model."""
    width, shape, vocab = int(case["d_model"]), str(case["shape"]), int(case["vocab"])
    stack = StackConfig(
        d_model=width,
        n_heads=max(1, width // 32),
        n_layers=int(case["layers"]),
        d_ff=4 * width,
        dropout=float(case.get("dropout", 0.1)),
    )
    if shape == "classify":
        return ModelConfig(vocab_size=vocab, encoder=stack, head=Classify(2))
    return ModelConfig(vocab_size=vocab, **dict.fromkeys(shape.split("-"), stack))


def data(case: Mapping[str, object]) -> Batch:
    """Return rows of random ids, most of them a little shorter than the longest."""
    draw, vocab, rows, length = random.Random(0), int(case["vocab"]), int(case["rows"]), int(case["length"])
    texts = [[draw.randrange(8, vocab) for _ in range(length - 2 - row % 4)] for row in range(rows)]
    match case["shape"]:
        case "encoder":
            return Batch.blanks([text[: length // 2] for text in texts], [text[length // 2 :] for text in texts])
        case "classify":
            return Batch.labelled(texts, [row % 2 for row in range(rows)])
        case "decoder":
            pairs = Batch.pairs(texts, texts)
            return Batch(pairs.tokens, pairs.keep)
        case _:
            return Batch.pairs(texts, texts[::-1])


def status(name: str) -> int:
    """Return a figure of this process, in bytes."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def words_of(case: Mapping[str, object]) -> str:
    """Return a configuration in words."""
    extra = [f"{name} {case[name]}" for name in ("precision", "accumulate", "recompute") if name in case]
    sizes = f"{case['d_model']} wide, {case['layers']} blocks, V {case['vocab']}, {case['rows']} x {case['length']}"
    return ", ".join([str(case["shape"]), sizes, *extra])


if __name__ == "__main__":
    sys.exit(main())
