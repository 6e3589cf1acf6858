"""float32 or bfloat16: whichever is faster for this model on this machine, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.runtime import has_bfloat16
from glassformer.model.transformer import Transformer
from glassformer.train.loop import compute_in, seeded
from glassformer.train.objective import loss_of, objective_for

ROUNDS = 3
WORTH_IT = 1.1
"""bfloat16 must be this much faster: at equal speed the more exact arithmetic is the better one."""


def choose_precision(asked: str, model: Transformer, batches: Sequence[Batch]) -> tuple[str, str]:
    """The arithmetic for training and why. "auto" times a forward and backward of each, in turn; weights stay put."""
    device = next(model.parameters()).device
    if asked != "auto":
        return asked, f"{asked}, as asked"
    if not has_bfloat16(device):
        return "float32", "float32, as this processor has no bfloat16 arithmetic"
    for precision in ("float32", "bfloat16"):
        _seconds(model, batches[0], precision)  # the first time pays for set-up
    pairs = [
        [_seconds(model, batch, precision) for precision in ("float32", "bfloat16")] for batch in list(batches) * ROUNDS
    ]
    ratio = statistics.median(slow / fast for slow, fast in pairs)
    chosen = "bfloat16" if ratio >= WORTH_IT else "float32"
    return chosen, f"{chosen}, as bfloat16 is {ratio:.2f} times as fast as float32 here"


def _seconds(model: Transformer, batch: Batch, precision: str) -> float:
    """How long one forward and backward takes. The gradients are thrown away."""
    device = next(model.parameters()).device
    batch = batch.to(device)
    model.train()
    began = time.perf_counter()
    with seeded(0, device=device):
        with compute_in(precision, device):
            loss = loss_of(model, batch, objective_for(model)).objective
        loss.backward()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    model.zero_grad(set_to_none=True)
    return time.perf_counter() - began
