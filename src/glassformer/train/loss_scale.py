"""Scaling the loss, so that float16 can hold small gradients; an update that overflows is skipped, not a divergence."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from glassformer.foundation.errors import DivergedError

MOST_SKIPPED = 20
"""Updates skipped in a row from which on the scale is not to blame: by then it was halved so often."""


class LossScale:
    """Gradients of `scale` times the loss, divided by it again (Micikevicius et al. 2018, section 3.2).

    `torch.amp.GradScaler` keeps the scale: halved after an update that overflows, doubled after 2,000 in a row that do
    not. Besides, the updates that were skipped are counted.
    """

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type)
        self.skipped = 0
        """Updates skipped so far."""
        self.in_a_row = 0
        """Updates skipped since the last that was not."""

    @property
    def scale(self) -> float:
        """What the next loss is multiplied by."""
        return self.scaler.get_scale()

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to call `backward` of."""
        return self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the optimizer's gradients those of the loss itself. Once, after the last backward of an update."""
        self.scaler.unscale_(optimizer)

    def after(self, number: int, *, finite: bool) -> None:
        """Moves the scale after update `number`, which is made if the gradients are finite and skipped if not.

        Errors: `DivergedError` for the twentieth that is skipped in a row.
        """
        self.scaler.update()
        self.skipped += not finite
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if self.in_a_row >= MOST_SKIPPED:
            raise DivergedError(
                f"Training must stay finite; at step {number} loss or gradient overflowed float16 for the "
                f"{self.in_a_row}th time in a row, though the loss is scaled by no more than {self.scale:g}. The "
                "weights were not updated. Try training.precision=bfloat16 or float32, or a lower learning rate."
            )

    def state(self) -> dict[str, float]:
        """Plain numbers, for `save`."""
        return {**self.scaler.state_dict(), "skipped": self.skipped, "in_a_row": self.in_a_row}

    def load(self, state: Mapping[str, float]) -> None:
        """The inverse of `state`."""
        numbers = dict(state)
        self.skipped, self.in_a_row = int(numbers.pop("skipped")), int(numbers.pop("in_a_row"))
        self.scaler.load_state_dict(numbers)
