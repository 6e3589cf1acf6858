"""Watching attention: inside a `with`, record every call of each `Attention.attend` without changing its result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attend import Attend, Mask
from glassformer.nn.attention import Attention


class Attended(NamedTuple):
    """The arguments and the output of one call of `Attention.attend`."""

    name: str
    """The attention's name in `attentions`."""
    attention: Attention
    q: Float[Tensor, "B H T K"]
    k: Float[Tensor, "B G S K"]
    v: Float[Tensor, "B G S K"]
    mask: Mask
    scale: float
    output: Float[Tensor, "B H T K"]


@contextmanager
def watch_attention(model: nn.Module, note: Callable[[Attended], None]) -> Generator[None]:
    """Inside the `with`, call `note`, without gradients, for every call of every attention in the model.

    The original `attend` still computes the output, so logits are equal bit by bit. Afterwards the model is exactly as
    before, even if the `with` ends in an exception.
    """
    watched = attentions(model)
    before = {name: attention.attend for name, attention in watched.items()}
    try:
        for name, attention in watched.items():
            attention.attend = _noting(name, attention, note)
        yield
    finally:
        for name, attention in watched.items():
            attention.attend = before[name]


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every attention of the model by its place, for example "decoder.blocks.1.cross_attention"."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Attention)}
    return {name.removesuffix(".branch"): module for name, module in found.items()}


def _noting(name: str, attention: Attention, note: Callable[[Attended], None]) -> Attend:
    own = attention.attend

    def noting(q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, scale: float, dropout: float = 0.0) -> Tensor:
        output = own(q, k, v, mask, scale=scale, dropout=dropout)
        with torch.no_grad():
            note(Attended(name, attention, q, k, v, mask, scale, output))
        return output

    return noting
