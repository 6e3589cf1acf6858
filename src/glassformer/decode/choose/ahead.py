"""Choosing tokens before those written last are known to the host: nothing here asks what is in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.choose.context import ByLogits, Choose
from glassformer.decode.choose.draw import Chooser, draw
from glassformer.decode.choose.greedy import greedy

REFUSED = -1
"""In place of a token where `Choose` raises an error."""


@dataclass(frozen=True)
class Ahead:
    """A `Choose` that looks at logits only, and at random numbers that the host knows in advance."""

    steps: Sequence[ByLogits]
    seed: int | None
    """Of the random numbers, as `own_uniforms` makes them; None: the most likely token is chosen."""

    def __call__(self, logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"] | None = None) -> Int[Tensor, " B"]:
        """Return what `Choose` would, or `REFUSED`."""
        given = kept = logits.to(torch.promote_types(logits.dtype, torch.float32))
        for each in self.steps:
            kept = each.step(kept)
        ids = kept.argmax(-1) if uniforms is None else draw(kept, uniforms)
        sound = (given.amax(-1) < math.inf) & kept.amax(-1).isfinite()  # NaN is not below infinity
        return torch.where(sound, ids, REFUSED)


def ahead_of(choose: Choose) -> Ahead | None:
    """Return how to choose as `choose` does before the last tokens are known; None if it has to know them."""
    if choose is greedy:
        return Ahead((), None)
    if not isinstance(choose, Chooser) or choose.uniforms is not None:
        return None
    steps = [each for each in choose.steps if isinstance(each, ByLogits)]
    if len(steps) < len(choose.steps):
        return None
    return Ahead(steps, None if choose.sampling.temperature == 0 else choose.sampling.seed)
