"""A moving average of the weights over all steps so far, which is evaluated and kept instead of the last weights."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from glassformer.base.errors import CheckpointError
from glassformer.train.optim.optimizer import NamedState
from glassformer.train.ranks.sharded import is_sharded, local, put_back

SUM, LAST = "average", "last"
"""What a checkpoint keeps for each parameter, beside the average, which is stored as the weights of its model."""


class Average:
    """sum <- memory sum + (1 - memory) weights after each step; the average is sum / (1 - memory^steps).

    An exponential moving average (Polyak and Juditsky 1992 for the plain mean), corrected for its start at zero as
    Adam's moments are (Kingma and Ba 2015, algorithm 1). It smooths out the noise of the last batches. If a model is
    sharded over several processes, each averages the parts that it has.
    """

    def __init__(self, model: nn.Module, memory: float) -> None:
        self.model = model
        self.memory = memory
        self.sums: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights into the average after a step."""
        for name, parameter in self.model.named_parameters():
            local(self._sum(name, parameter)).lerp_(local(parameter), 1 - self.memory)

    @contextmanager
    def in_place(self, steps: int) -> Generator[None]:
        """Give the model its average over `steps` steps as weights; afterwards it has its own again, bit for bit.

        Before the first step there is no average, and the model keeps its own weights.
        """
        if steps == 0:
            yield
            return
        own = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        put(self.model, {name: each / (1 - self.memory**steps) for name, each in self.sums.items()})
        try:
            yield
        finally:
            if any(is_sharded(each) for each in own.values()):
                put_back(self.model)  # drops the whole weights that a forward in between may have gathered
            put(self.model, own)

    def state(self) -> NamedState:
        """What `restore` needs; the weights among it are the model's own only if this is called outside `in_place`."""
        return {
            name: {SUM: self._sum(name, parameter), LAST: parameter.detach().clone()}
            for name, parameter in self.model.named_parameters()
        }

    def restore(self, saved: NamedState) -> NamedState:
        """Restore what `state` returned, including the model's weights. Returns the rest, which is the optimizer's.

        Errors: `CheckpointError` if the saved state has no average.
        """
        if any(not {SUM, LAST} <= slots.keys() for slots in saved.values()):
            raise CheckpointError(
                "A run with optimizer.average needs the average in its checkpoint; this one has none. Resume with the "
                "recipe that the run began with."
            )
        put(self.model, {name: slots[LAST] for name, slots in saved.items()})
        self.sums = {name: slots[SUM] for name, slots in saved.items()}
        return {
            name: {key: each for key, each in slots.items() if key not in (SUM, LAST)} for name, slots in saved.items()
        }

    def _sum(self, name: str, parameter: Tensor) -> Tensor:
        if name not in self.sums:
            self.sums[name] = torch.zeros_like(parameter)
        return self.sums[name]


def merged(one: NamedState, other: NamedState) -> NamedState:
    """Merge two states: what either keeps for each parameter."""
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {**one, **other}}


def averaged(average: Average | None, steps: int) -> AbstractContextManager[None]:
    """`average.in_place(steps)`, or a context that does nothing if there is no average."""
    return average.in_place(steps) if average else nullcontext()


@torch.no_grad()
def put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model, by name."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
