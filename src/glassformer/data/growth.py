"""How large a batch and how long a sequence may be at each step of training: pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

EIGHT = 8
"""Lengths grow in multiples of this, as in Li et al.: each new length is a new shape, which costs time once."""


@dataclass(frozen=True)
class Growth:
    """Linear warm-ups of the batch and of the sequence length; with 0 steps each has its full size at once.

    Small batches and short sequences at the start keep the variance of the gradient low, and with it the risk of
    divergence (Li, Zhang and He 2022, "The Stability-Efficiency Dilemma", section 4, for the length; Smith et al. 2018,
    "Don't Decay the Learning Rate, Increase the Batch Size", for the batch). Nothing has to be saved: a resumed run
    calls the same functions.
    """

    batch_steps: int = 0
    batch_start: float = 1.0
    """Share of the full batch at step 1, above 0 and at most 1."""
    length_steps: int = 0
    length_start: int = 1
    """Longest sequence at step 1, in tokens."""

    @property
    def steps(self) -> int:
        """The last step at which either warm-up limits something."""
        return max(self.batch_steps, self.length_steps)

    def share(self, step: int) -> float:
        """The share of a full batch at this step (counted from 1): `batch_start` at step 1, 1 after the warm-up."""
        if step > self.batch_steps:
            return 1.0
        return self.batch_start + (1.0 - self.batch_start) * (step - 1) / self.batch_steps

    def parts(self, step: int) -> int:
        """The number of equal parts to cut a full batch into, so that none is more than `share(step)` of it."""
        return math.ceil(1.0 / self.share(step) - 1e-9)

    def length(self, step: int, longest: int) -> int:
        """The longest sequence at this step (counted from 1), in tokens: `longest` after the warm-up."""
        if step > self.length_steps:
            return longest
        start = min(self.length_start, longest)
        return start + (longest - start) * (step - 1) // self.length_steps // EIGHT * EIGHT
