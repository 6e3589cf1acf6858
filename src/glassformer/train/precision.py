"""Choose float32 or bfloat16 by measuring which is faster for this model on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from itertools import islice

import torch

from glassformer.base.runtime import has_bfloat16
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loop import compute_in, seeded
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

TIMED = 8
"""How many batches are timed."""
AHEAD = 256
"""How many batches are looked at, to see how many sizes they have."""
KEPT = 64
"""Numbers of positions for which oneDNN keeps what it compiles: 1,024 products, of which a batch has fifteen or so."""
WORTH_IT = 1.15
"""How many times as fast bfloat16 must be: at equal speed, or within the noise, the more exact arithmetic is better."""
BOTH = ("float32", "bfloat16")


def choose_precision(asked: str, model: Transformer, batches: Iterable[Batch]) -> tuple[str, str]:
    """Return the arithmetic for training on `batches`, and the reason.

    "auto" times a forward and backward pass in both, one right after the other on each of the first batches; they take
    turns at being first. The median of the ratios decides, so that a burst of other work slows both or is an outlier.
    The first pass with so many positions includes set-up, because oneDNN compiles products in bfloat16 for their sizes.
    It counts if the sizes are so many that a run pays it again and again. The weights are not changed.
    """
    device = next(model.parameters()).device
    if asked != "auto":
        return asked, f"{asked}, as asked"
    if not has_bfloat16(device):
        return "float32", "float32, as this processor has no bfloat16 arithmetic"
    few, recurs = look_at(batches)
    set_up = few[:1] if recurs else {positions(batch): batch for batch in few}.values()
    for batch in set_up:
        for precision in BOTH:
            _seconds(model, batch, precision)
    ratios: list[float] = []
    for number, batch in enumerate(few):
        order = BOTH if number % 2 == 0 else BOTH[::-1]
        seconds = {precision: _seconds(model, batch, precision) for precision in order}
        ratios.append(seconds["float32"] / seconds["bfloat16"])
    ratio = statistics.median(ratios)
    chosen = "bfloat16" if ratio >= WORTH_IT else "float32"
    why = "" if chosen == "bfloat16" else f", and less than {WORTH_IT} may be chance"
    return chosen, f"{chosen}, as bfloat16 is {ratio:.2f} times as fast as float32 here{why}"


def look_at(batches: Iterable[Batch]) -> tuple[list[Batch], bool]:
    """The first batches, and whether those ahead have too many sizes to be set up once."""
    few: list[Batch] = []
    sizes: set[int] = set()
    for batch in islice(batches, AHEAD):
        if len(few) < TIMED:
            few.append(batch)
        sizes.update(positions(batch))
    return few, len(sizes) > KEPT


def positions(batch: Batch) -> tuple[int, ...]:
    """The number of positions that each stack reads: its maps see no other shape."""
    return tuple(read.numel() for read in (batch.tokens, batch.source) if read is not None)


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
