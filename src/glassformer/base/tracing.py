"""Whether torch itself wants to see each operation, and operations that are recorded to be done again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


def traced() -> bool:
    """Whether a compiler, a function of torch.func or forward-mode differentiation follows what is computed.

    They know torch's own operations, and nothing of functions with gradients of their own.
    """
    if torch.compiler.is_compiling():
        return True
    mapped = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
    return mapped or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def followed() -> bool:
    """Whether torch or one of its modes wants to see each operation; then nothing may be left to our C++."""
    return traced() or is_in_torch_dispatch_mode()


def differentiated(gradient: Tensor) -> bool:
    """Whether the way back must take steps that torch knows: they will be differentiated, too, or many are asked for.

    The latter is `torch.autograd.grad(..., is_grads_batched=True)`, as the Hessians of torch use it.
    """
    return torch.is_grad_enabled() or is_legacy_batchedtensor(gradient)


# Operations that are recorded, to be done again on other numbers in the same places (fast/graphs.py).

Constants = dict[tuple[tuple[int | float, ...], torch.dtype, torch.device], Tensor]
"""Tensors whose numbers came from the host, by these."""

_KEPT: ContextVar[Constants | None] = ContextVar("kept", default=None)


@contextmanager
def as_recorded(kept: Constants) -> Generator[None]:
    """Within the `with`, operations are recorded, or rehearsed before they are; `kept` has their constants."""
    before = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(before)


def constant(numbers: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of these numbers. As a record takes nothing from the host, it finds those of its rehearsal."""
    kept = None if torch.compiler.is_compiling() else _KEPT.get()  # which a compiler cannot follow
    if kept is None:
        return torch.tensor(numbers, dtype=dtype, device=device)
    key = (tuple(numbers), dtype, device)
    if key not in kept:
        kept[key] = torch.tensor(numbers, dtype=dtype, device=device)
    return kept[key]
