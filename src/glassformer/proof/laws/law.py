"""What `glassformer verify` is made of: a law, the cases it is tried on, and how far apart two answers are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from glassformer.foundation.errors import GlassformerError
from glassformer.foundation.shapes import Float, Tensor

EPSILONS = 8192
"""Roundings of the arithmetic (torch.finfo.eps) that two ways to compute the same may lie apart: 1.8e-12 in float64."""


class Setting(NamedTuple):
    """Where and in which numbers a law is tried."""

    device: torch.device
    dtype: torch.dtype
    notebooks: Path | None = None
    """The folder of the five notebooks."""

    @property
    def bound(self) -> float:
        """The largest error that still counts as equal."""
        return EPSILONS * torch.finfo(self.dtype).eps


class NotHere(GlassformerError):
    """A law cannot be tried on this machine; the message says what is missing."""


class Law(NamedTuple):
    """One claim. `errors` tries it and yields the error of each case; a NaN breaks it."""

    group: str
    claim: str
    errors: Callable[[Setting], Iterator[float]]
    exact: bool = False
    """Whether the answers must be the same to the bit."""
    narrow: bool = False
    """Whether the other side computes in float32 whatever the setting: the bound is then that of float32."""


class Verdict(NamedTuple):
    """What came of one law."""

    group: str
    claim: str
    cases: int
    worst: float
    bound: float
    missing: str | None = None
    """Why it was not tried."""

    @property
    def holds(self) -> bool:
        """Whether every case stayed within the bound; a law that was not tried breaks nothing."""
        return self.missing is not None or (self.cases > 0 and self.worst <= self.bound)


def judge(law: Law, setting: Setting) -> Verdict:
    """Tries a law on all its cases."""
    wide = setting._replace(dtype=torch.float32) if law.narrow else setting
    bound = 0.0 if law.exact else max(setting.bound, wide.bound)
    torch.manual_seed(0)
    try:
        errors = list(law.errors(setting))
    except NotHere as missing:
        return Verdict(law.group, law.claim, 0, 0.0, bound, str(missing))
    worst = math.inf if any(math.isnan(each) for each in errors) else max(errors, default=math.inf)
    return Verdict(law.group, law.claim, len(errors), worst, bound)


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the larger of 1 and what is expected; infinite for unequal shapes."""
    if ours.shape != theirs.shape:
        return math.inf
    if not ours.numel():
        return 0.0
    wide = torch.float64 if ours.device.type != "mps" else torch.float32
    mine, other = ours.detach().to(wide), theirs.detach().to(wide)
    return ((mine - other).abs() / other.abs().clamp(min=1)).max().item()


def all_apart(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """The largest `apart` of two rows of tensors."""
    return max((apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def weighted(output: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """A sum whose weights all differ, so that no gradient cancels; of the order of 1."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    return (output * weights).sum() / output.numel() ** 0.5


def gradients(output: Float[Tensor, "..."], module: nn.Module) -> dict[str, Tensor]:
    """The gradient of `weighted(output)` by parameter name."""
    named = {name: each for name, each in module.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(weighted(output), list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference over gradients by the same names; infinite where a name is missing."""
    if ours.keys() != theirs.keys():
        return math.inf
    return all_apart(ours.values(), (theirs[name] for name in ours))
