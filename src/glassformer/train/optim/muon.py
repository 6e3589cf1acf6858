"""The Muon optimizer: the orthogonalised momentum is the step of a hidden matrix; AdamW moves all other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor

from glassformer.train.optim.orthogonal import by_products, orthogonal
from glassformer.train.optim.uncompiled import AdamW, Uncompiled

LIKE_ADAMW = 0.2
"""The root mean square of AdamW's steps, to which Muon's steps are scaled (Liu et al. 2025, equation 4)."""
LARGEST = torch.finfo(torch.float32).max
MANY: Any = torch
"""torch, whose functions of many tensors (`_foreach_`), the ground of its own optimizers, have no types."""

Group = dict[str, Any]


class Muon(Uncompiled):
    """Muon (Jordan et al. 2024) for `matrices`, fused AdamW for `others`; both are lists of parameter groups.

    Steps have the size of AdamW's (Liu et al. 2025, equation 4), so that one learning rate and weight decay fit both.
    Matrices of one shape are orthogonalised together, in `dtype` (None: the weights' own).
    """

    def __init__(
        self,
        matrices: Iterable[Group],
        others: Iterable[Group],
        *,
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(list(matrices), {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.dtype = dtype
        self.iterate = by_products
        self.matrices = list(self.param_groups)
        self.adamw = AdamW(list(others), lr=lr, betas=betas, eps=eps, fused=True)
        self.adamw.state = self.state  # one state and one list of groups for both rules
        self.param_groups += self.adamw.param_groups

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every parameter that has a gradient."""
        assert closure is None, "the loss is computed before the step, not by it"
        self.adamw.step()
        for group in self.matrices:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for _, alike in groupby(sorted(moved, key=shape_of), key=shape_of):
                self._turn(list(alike), group)

    def _turn(self, parameters: list[Tensor], group: Group) -> None:
        """W <- (1 - rate decay) W - rate 0.2 sqrt(max(rows, columns)) orthogonal(Nesterov momentum)."""
        rate, memory = group["lr"], group["momentum"]
        momenta: list[Tensor] = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            momenta.append(state["momentum"])
        # One call for all matrices of a shape: a small one takes longer to ask for than to move.
        gradients = [cast("Tensor", parameter.grad) for parameter in parameters]
        MANY._foreach_lerp_(momenta, gradients, 1 - memory)
        ahead = MANY._foreach_lerp(gradients, momenta, memory)
        turned = orthogonal(torch.stack(ahead), self.dtype, self.iterate)
        size = LIKE_ADAMW * max(turned.shape[1:]) ** 0.5
        step = min(rate * size, LARGEST)  # beyond it torch refuses the number; the weights diverge either way
        MANY._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        MANY._foreach_sub_(parameters, turned.unbind(), alpha=step)


def shape_of(parameter: Tensor) -> tuple[int, ...]:
    """The shape, by which matrices are grouped to be orthogonalised together."""
    return tuple(parameter.shape)
