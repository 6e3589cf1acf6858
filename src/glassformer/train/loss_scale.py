"""Loss scaling, so that float16 can hold small gradients; an update that overflows is skipped, not a divergence."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from glassformer.base.errors import DivergedError

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

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, to call `backward` on."""
        return self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the optimizer's gradients into those of the loss itself. Call once, after an update's last backward."""
        self.scaler.unscale_(optimizer)

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
