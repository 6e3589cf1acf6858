"""The parts of `glassformer verify`: a law, the setting it is tested in, its verdict, and distances between answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from glassformer.base.errors import GlassformerError
from glassformer.base.shapes import Bool, Float, Int, Tensor
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.transformer import Transformer

EPSILONS = 8192
"""How many machine epsilons (torch.finfo.eps) two computations of the same value may differ by: 1.8e-12 in float64."""


class Setting(NamedTuple):
    """The device and dtype in which laws are tested."""

    device: torch.device
    dtype: torch.dtype
    notebooks: Path | None = None
    """The folder of the five notebooks."""

    @property
    def bound(self) -> float:
        """The largest error that still counts as equal."""
        return EPSILONS * torch.finfo(self.dtype).eps


class NotHere(GlassformerError):
    """Raised when a law cannot be tested on this machine. The message says what is missing."""


class Law(NamedTuple):
    """One claim. `errors` tests it and yields the error of each case; a NaN breaks the law."""

    group: str
    claim: str
    errors: Callable[[Setting], Iterator[float]]
    exact: bool = False
    """Whether the answers must be bitwise equal."""
    narrow: bool = False
    """Whether the other side always computes in float32. The bound is then that of float32."""


class Verdict(NamedTuple):
    """The result of testing one law."""

    group: str
    claim: str
    cases: int
    worst: float
    bound: float
    missing: str | None = None
    """Why the law was not tested, if it was not."""

    @property
    def holds(self) -> bool:
        """Whether every case stayed within the bound. A law that was not tested counts as holding."""
        return self.missing is not None or (self.cases > 0 and self.worst <= self.bound)


def judge(law: Law, setting: Setting) -> Verdict:
    """Test a law on all its cases."""
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
    """Return the largest difference, relative to the larger of 1 and the expected value.

    Infinite for unequal shapes.
    """
    if ours.shape != theirs.shape:
        return math.inf
    if not ours.numel():
        return 0.0
    wide = torch.float64 if ours.device.type != "mps" else torch.float32
    mine, other = ours.detach().to(wide), theirs.detach().to(wide)
    return ((mine - other).abs() / other.abs().clamp(min=1)).max().item()


def all_apart(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """Return the largest `apart` over two sequences of tensors."""
    return max((apart(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def weighted(output: Float[Tensor, "..."]) -> Float[Tensor, ""]:
    """Return a sum with distinct weights, so that no gradient cancels. Its size is of the order of 1."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    return (output * weights).sum() / output.numel() ** 0.5


def gradients(output: Float[Tensor, "..."], module: nn.Module) -> dict[str, Tensor]:
    """Return the gradient of `weighted(output)` by parameter name."""
    named = {name: each for name, each in module.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(weighted(output), list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Return the largest difference between gradients of the same names. Infinite if the names differ."""
    if ours.keys() != theirs.keys():
        return math.inf
    return all_apart(ours.values(), (theirs[name] for name in ours))


# Small random models and padded batches to test laws on.

VOCAB = 11
PADDINGS = ("right", "left", "holes")
"""Where the padding of a row may be; "holes": between its tokens."""
Module = TypeVar("Module", bound=nn.Module)


def stack(**settings: Any) -> StackConfig:
    """Return a config of two blocks with four heads of width four and no dropout, changed by `settings`."""
    small: dict[str, Any] = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "dropout": 0.0, "max_len": 24}
    return StackConfig(**(small | settings))


def model(setting: Setting, shape: str, *, own: dict[str, Any] | None = None, **settings: Any) -> Transformer:
    """Return a random model of a shape ("encoder", "decoder", "encoder-decoder").

    `own` are settings of the whole model.
    """
    whole: dict[str, Any] = {"vocab_size": VOCAB} | {side: stack(**settings) for side in shape.split("-")}
    return scramble(Transformer(ModelConfig(**(whole | (own or {})))), setting).eval()


def scramble(module: Module, setting: Setting) -> Module:
    """Move the module to the setting's device and dtype, and draw every parameter from a normal distribution.

    Its standard deviation is 0.4. Zeros and ones would hide mistakes.
    """
    module = module.to(setting.device, setting.dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64).mul(0.4))
    return module


def normal(setting: Setting, *shape: int) -> Tensor:
    """Return normal random numbers that require a gradient."""
    return torch.randn(*shape, dtype=torch.float64).to(setting.device, setting.dtype).requires_grad_()


def tokens(setting: Setting, *shape: int) -> Int[Tensor, "..."]:
    """Return random ids."""
    return torch.randint(VOCAB, shape).to(setting.device)


def padded(
    setting: Setting, rows: Sequence[Tensor], width: int, where: str
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Put rows of ids into one tensor, padded as `where` says (see `PADDINGS`), and return it with its keep mask.

    Padding holds random ids, since no result may depend on them.
    """
    keep = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, ids in zip(keep, rows, strict=True):
        n = len(ids)
        places = {"right": torch.arange(n), "left": torch.arange(width - n, width), "holes": torch.randperm(width)[:n]}
        row[places[where]] = True
    held = torch.randint(VOCAB, keep.shape)
    held[keep] = torch.cat([ids.cpu() for ids in rows])
    return held.to(setting.device), keep.to(setting.device)
