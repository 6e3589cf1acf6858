"""Choose float32 or bfloat16 by measuring which is faster for this model on this machine."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.runtime import has_bfloat16
from glassformer.model.transformer import Transformer
from glassformer.train.loop import compute_in, seeded
from glassformer.train.objective import loss_of, objective_for

FEW = 8
"""How many batches of a run are timed."""
WORTH_IT = 1.15
"""How many times as fast bfloat16 must be: at equal speed, or within the noise, the more exact arithmetic is better."""
BOTH = ("float32", "bfloat16")


def choose_precision(asked: str, model: Transformer, batches: Sequence[Batch]) -> tuple[str, str]:
    """Return the arithmetic for training, and the reason.

    "auto" times a forward and backward pass in both, one right after the other on each of `batches`; they take turns at
    being first. The median of the ratios decides, so that a burst of other work slows both or is an outlier. The first
    pass of a shape includes set-up: oneDNN compiles a product in bfloat16 for its sizes, and keeps about a thousand.
    Where shapes repeat it is left out; where each is another, a run pays it again and again, so it counts. The weights
    are not changed.
    """
    device = next(model.parameters()).device
    if asked != "auto":
        return asked, f"{asked}, as asked"
    if not has_bfloat16(device):
        return "float32", "float32, as this processor has no bfloat16 arithmetic"
    for batch in repeated(batches):
        for precision in BOTH:
            _seconds(model, batch, precision)
    ratios: list[float] = []
    for number, batch in enumerate(batches):
        order = BOTH if number % 2 == 0 else BOTH[::-1]
        seconds = {precision: _seconds(model, batch, precision) for precision in order}
        ratios.append(seconds["float32"] / seconds["bfloat16"])
    ratio = statistics.median(ratios)
    chosen = "bfloat16" if ratio >= WORTH_IT else "float32"
    why = "" if chosen == "bfloat16" else f", and less than {WORTH_IT} may be chance"
    return chosen, f"{chosen}, as bfloat16 is {ratio:.2f} times as fast as float32 here{why}"


def repeated(batches: Sequence[Batch]) -> list[Batch]:
    """One batch of each shape that several have."""
    shapes = [tuple(read.shape for read in (each.tokens, each.source) if read is not None) for each in batches]
    several = {shape for shape, times in Counter(shapes).items() if times > 1}
    return [batch for shape, batch in dict(zip(shapes, batches, strict=True)).items() if shape in several]


def _seconds(model: Transformer, batch: Batch, precision: str) -> float:
    """Time one forward and backward pass; the gradients are thrown away."""
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
