"""Operations that are recorded, to be done again on other numbers in the same places (fast/graphs.py)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

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
