"""Looking at a model without changing it: in evaluation mode, and at every call of attention."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

import torch
from torch import nn

from glassformer.base.shapes import Keys, Queries, Tensor, Values
from glassformer.nn.attention import Attend, Attention
from glassformer.nn.mask import Mask


class Evaluation:
    """A context manager: inside, models are in evaluation mode; then each of their modules is in its own mode again.

    It may be entered again and again, as a generator does around each of its steps, but not around a `yield`.

    >>> model = nn.Sequential(nn.Dropout(0.5)).train()
    >>> with Evaluation(model):
    ...     model.training
    False
    >>> model.training
    True
    """

    def __init__(self, *models: nn.Module) -> None:
        self._modules = [module for model in models for module in model.modules()]
        self._training: list[nn.Module] = []

    def __enter__(self) -> None:
        self._training = [each for each in self._modules if each.training]
        for each in self._training:  # at each token: a module's own setattr takes a fifth of a small model's step
            vars(each)["training"] = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._training:
            vars(each)["training"] = True


class Attended(NamedTuple):
    """The arguments and the output of one call of `Attention.attend`."""

    name: str
    """The attention's name in `attentions`."""
    attention: Attention
    q: Queries
    k: Keys
    v: Values
    mask: Mask
    scale: float
    output: Queries


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
