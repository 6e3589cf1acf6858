"""The cost of several processes on this machine, over gloo: a training step of 1, 2 and 4, replicated and sharded.

The batch of a step is the same however many there are, so each of n processes computes 1/n of it, and then they add up
their gradients. Shown for each: wall-clock time of a step; CPU time of all processes together (more telling on a busy
machine: what it exceeds that of one process by is the cost of sharing); and the bytes that each process sends in a
step, which are calculated: 2 (n - 1) / n times the gradients for replicas (a ring), and 3 (n - 1) / n times the weights
for a sharded model (gathered for the forward and for the backward pass, gradients scattered). One thread per process.
With more processes than processors, they wait for each other, and the figures show nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

import torch
from common import begin, markdown

from glassformer import Batch, ModelConfig, StackConfig, Transformer, train_steps
from glassformer.base.launched import launched
from glassformer.base.processors import free_processors
from glassformer.data.tokens.vocabulary import SPECIALS
from glassformer.train.optimizer import build_optimizer
from glassformer.train.ranks.distributed import Ranks, joined
from glassformer.train.ranks.sharded import cut
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig, Update

PATIENCE = 900
"""Seconds."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the benchmark: this process starts the others, which measure."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py ranks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--processes", type=int, nargs="+", default=(1, 2, 4), help="how many (default: 1 2 4)")
    parser.add_argument("--steps", type=int, default=9, help="measured, after two that are not (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="sequences (default: %(default)s)")
    parser.add_argument("--length", type=int, default=16, help="tokens of source and of target (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=2_000, help="tokens known (default: %(default)s)")
    parser.add_argument("--d-model", type=int, default=128, help="width (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=3, help="blocks in each stack (default: %(default)s)")
    options = parser.parse_args(words)
    if "RANK" in os.environ:
        return work(options)
    options.threads, options.device = 1, "cpu"
    begin("ranks: a training step of several processes over gloo", options)
    rows = list(measured(options, list(sys.argv[1:] if words is None else words)))
    print(json.dumps({"processors": free_processors(), "rows": rows}) if options.json else table(rows))
    return 0


def measured(options: argparse.Namespace, words: list[str]) -> Iterator[dict[str, float | str]]:
    """Yield a row for each number of processes, with replicas and with a sharded model."""
    for count in options.processes:
        for shard in (False, True) if count > 1 else (False,):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = str(probe.getsockname()[1])
            places = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "SHARD": str(shard)}
            command = [sys.executable, __file__, *[word for word in words if word != "ranks"]]
            processes = [
                subprocess.Popen(
                    command,
                    env={**os.environ, **places, "RANK": str(n), "LOCAL_RANK": str(n), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for n in range(count)
            ]
            found = [json.loads(each.communicate(timeout=PATIENCE)[0]) for each in processes]
            n_parameters = found[0]["parameters"]
            sent = (3 if shard else 2) * (count - 1) / count * 4 * n_parameters
            yield {
                "processes": count,
                "model": "alone" if count == 1 else "cut (FSDP2)" if shard else "whole in each (DDP)",
                "step, ms": max(each["clock"] for each in found),
                "processor, all together, ms": sum(each["processor"] for each in found),
                "sent by each, MB": sent / 1e6,
                "weights, gradients, AdamW in each, MB": 16 * n_parameters / (count if shard else 1) / 1e6,
            }


def work(options: argparse.Namespace) -> int:
    """Be one of the processes: print the median wall-clock and CPU times of the steps as JSON."""
    torch.set_num_threads(1)
    with joined(launched(), "cpu", PATIENCE) as ranks:
        print(json.dumps(timed(options, ranks)), flush=True)
    return 0


def timed(options: argparse.Namespace, ranks: Ranks) -> dict[str, float]:
    """Return the milliseconds of a step, as wall-clock time and as CPU time."""
    torch.manual_seed(0)
    stack = StackConfig(
        d_model=options.d_model, n_heads=4, n_layers=options.layers, d_ff=4 * options.d_model, dropout=0.0
    )
    model = Transformer(ModelConfig(options.vocabulary, encoder=stack, decoder=stack))
    n_parameters = sum(each.numel() for each in model.parameters())
    if os.environ["SHARD"] == "True":
        model = cut(model, ranks, "float32")
    lengths = [options.length - 2] * options.batch  # <bos> and <eos> are added
    rows = [[torch.randint(len(SPECIALS), options.vocabulary, (n,)).tolist() for n in lengths] for _ in range(2)]
    steps = options.steps + 2
    optimizer = build_optimizer(model, OptimizerConfig(), learning_rate=1e-4)
    clocks: list[float] = []
    processor: list[float] = []
    began = time.perf_counter(), time.process_time()
    schedule = Schedule("constant", 1e-4, steps)
    for _ in train_steps(model, [Batch.pairs(*rows)] * steps, optimizer, schedule, Update(clip=1.0), ranks=ranks):
        now = time.perf_counter(), time.process_time()
        clocks.append(1e3 * (now[0] - began[0]))
        processor.append(1e3 * (now[1] - began[1]))
        began = now
    return {"clock": median(clocks[2:]), "processor": median(processor[2:]), "parameters": n_parameters}


def table(rows: list[dict[str, float | str]]) -> str:
    """Return the rows as a table."""
    shown = [[f"{each:.1f}" if isinstance(each, float) else str(each) for each in row.values()] for row in rows]
    return markdown(list(rows[0]), shown)


if __name__ == "__main__":
    sys.exit(main())
