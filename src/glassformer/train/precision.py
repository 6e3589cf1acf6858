"""The arithmetic of training: float32, bfloat16 or float16; chosen by measuring, and the loss scale of float16."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Mapping
from itertools import islice

import torch

from glassformer.base.errors import DivergedError
from glassformer.base.runtime import has_bfloat16, seeded
from glassformer.data.batch import Batch
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for

# Loss scaling, so that float16 can hold small gradients; an update that overflows is skipped, not a divergence.

MOST_SKIPPED = 20
"""Skipped updates in a row after which the scale cannot be to blame, because it has been halved that often."""


class LossScale:
    """Multiplies the loss by `scale` and divides the gradients by it (Micikevicius et al. 2018, section 3.2).

    `torch.amp.GradScaler` adjusts the scale: it halves it after an update that overflows and doubles it after 2,000 in
    a row that do not. This class also counts the skipped updates.
    """

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type)
        self.skipped = 0
        """Updates skipped so far."""
        self.in_a_row = 0
        """Updates skipped since the last one that was made."""

    @property
    def scale(self) -> float:
        """The factor of the next loss."""
        return self.scaler.get_scale()

    def after(self, number: int, *, finite: bool) -> None:
        """Adjust the scale after update `number`, which is made if the gradients are finite and skipped if not.

        Errors: `DivergedError` for the twentieth update in a row that is skipped.
        """
        self.scaler.update()
        self.skipped += not finite
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.in_a_row >= MOST_SKIPPED:
            raise DivergedError(
                f"Training must stay finite; at step {number} the loss or the gradient overflowed float16 for the "
                f"{self.in_a_row}th time in a row, although the loss scale is only {self.scale:g}. The weights were "
                "not updated. Try training.precision=bfloat16 or float32, or a lower learning rate."
            )

    def state(self) -> dict[str, float]:
        """The state as plain numbers, for `save`."""
        return {**self.scaler.state_dict(), "skipped": self.skipped, "in_a_row": self.in_a_row}

    def load(self, state: Mapping[str, float]) -> None:
        """Restore what `state` returned."""
        numbers = dict(state)
        self.skipped, self.in_a_row = int(numbers.pop("skipped")), int(numbers.pop("in_a_row"))
        self.scaler.load_state_dict(numbers)


ARITHMETIC = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": None}
"""The arithmetics of a forward pass, and the dtype to which autocast narrows for each; see `compute_in`."""


def compute_in(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context of a forward pass: autocast for a narrow precision (weights stay float32), otherwise no change."""
    narrow = ARITHMETIC[precision]
    return contextlib.nullcontext() if narrow is None else torch.autocast(device.type, dtype=narrow)


# Choose float32 or bfloat16 by measuring which is faster for this model on this machine.

TIMED = 8
"""How many batches are timed."""
AHEAD = 256
"""How many batches are looked at, to see how many sizes they have."""
KEPT = 64
"""Numbers of positions for which oneDNN keeps what it compiles: 1,024 products, of which a batch has fifteen or so."""
WORTH_IT = 1.15
"""How many times as fast bfloat16 must be: at equal speed, or within the noise, the more exact arithmetic is better."""
BOTH = ("float32", "bfloat16")


def choose_precision(requested: str, model: Transformer, batches: Iterable[Batch]) -> tuple[str, str]:
    """Return the arithmetic for training on `batches`, and the reason.

    "auto" times a forward and backward pass in both, one right after the other on each of the first batches; they take
    turns at being first. The median of the ratios decides, so that a burst of other work slows both or is an outlier.
    The first pass with so many positions includes set-up, because oneDNN compiles products in bfloat16 for their sizes.
    It counts if the sizes are so many that a run pays it again and again. The weights are not changed.
    """
    device = next(model.parameters()).device
    if requested != "auto":
        return requested, f"{requested}, as asked"
    if not has_bfloat16(device):
        return "float32", "float32, as this processor has no bfloat16 arithmetic"
    few: list[Batch] = []
    sizes: set[int] = set()
    for batch in islice(batches, AHEAD):
        if len(few) < TIMED:
            few.append(batch)
        sizes.update(positions(batch))
    recurs = len(sizes) > KEPT
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
