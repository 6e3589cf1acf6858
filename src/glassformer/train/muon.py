"""The Muon optimizer: the orthogonalised momentum is the step of a hidden matrix; AdamW moves all other weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassformer.base.shapes import Float

# torch's optimizers without its compiler, whose import takes longer than a hundred steps of a small model.


class Uncompiled(Optimizer):
    """An optimizer without torch's decorators, which import its compiler only to exclude these functions from it."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch's AdamW (Loshchilov and Hutter 2019), equal to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))  # pyright: ignore[reportAssignmentType]


class Adafactor(Uncompiled, torch.optim.Adafactor):
    """torch's Adafactor (Shazeer and Stern 2018), equal to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adafactor.step))  # pyright: ignore[reportAssignmentType]


# The orthogonal matrix near a matrix, by Newton-Schulz iterations: the direction of Muon's step.

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd polynomial a x + b x^3 + c x^5, which drives singular values in (0, 1] to about 1 (Jordan et
al. 2024)."""
TURNS = 5
LARGE = 2.0**40
"""A power of two, so that dividing by it loses no digits."""


def by_products(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Five Newton-Schulz iterations: matrix products only, which are fast where a decomposition is not."""
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(TURNS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


Iterate = Callable[[Float[Tensor, "N R C"]], Float[Tensor, "N R C"]]


def orthogonal(
    matrices: Float[Tensor, "N R C"], dtype: torch.dtype | None = None, iterate: Iterate = by_products
) -> Float[Tensor, "N R C"]:
    """Approximate U V^T of each matrix U S V^T: singular values end between 0.7 and 1.2 (Jordan et al. 2024).

    Computed in `dtype`, for which bfloat16 is good enough; None: as given.
    """
    return iterate(scaled(matrices.to(dtype or matrices.dtype))).to(matrices.dtype)


def scaled(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """Divide each matrix by its norm, so that no singular value is above 1. Zeros stay zeros."""
    largest = x.flatten(1).abs().amax(-1)[:, None, None]  # a norm over two axes takes four times as long
    # Squares of large numbers would add up to infinity, and dividing by infinity would leave no step at all.
    x = x / torch.where(largest > LARGE**2, LARGE**2, torch.where(largest > LARGE, LARGE, 1.0)).to(x.dtype)
    return x.div_(x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7))


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
            for _, same in groupby(sorted(moved, key=attrgetter("shape")), key=attrgetter("shape")):
                self._turn(list(same), group)

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
