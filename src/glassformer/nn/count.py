"""Counting the parameters of a model, tensor by tensor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from glassformer.nn.config import ModelConfig
from glassformer.nn.transformer import Transformer


class Row(NamedTuple):
    """One parameter: its name, shape, number of elements, share of the total, and whether it is a shared tensor."""

    name: str
    shape: tuple[int, ...]
    numbers: int
    share: float
    same_as: str | None
    """The name under which this tensor was already counted, if any; its row then counts 0."""


def count_parameters(model: nn.Module) -> tuple[list[Row], int]:
    """Return a row for each named parameter, and the total over distinct tensors."""
    named = list(model.named_parameters(remove_duplicate=False))
    total = sum(parameter.numel() for parameter in model.parameters())
    first: dict[int, str] = {}
    rows: list[Row] = []
    for name, parameter in named:
        same_as = first.setdefault(id(parameter), name)
        numbers = parameter.numel() if same_as == name else 0
        rows.append(
            Row(name, tuple(parameter.shape), numbers, numbers / max(total, 1), None if same_as == name else same_as)
        )
    return rows, total


def on_meta(config: ModelConfig) -> Transformer:
    """Make the model that a config describes on the device "meta", where tensors have shapes and take no memory."""
    with torch.device("meta"):
        return Transformer(config)
