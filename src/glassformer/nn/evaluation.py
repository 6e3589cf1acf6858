"""Evaluation mode for as long as something is computed, whatever mode the caller's model is in."""

from __future__ import annotations

from types import TracebackType

from torch import nn


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
        for each in self._training:
            each.training = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._training:
            each.training = True
