"""Renaming our parameters to other libraries' names by a table of patterns, and joining projections where they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Table = Sequence[tuple[str, str]]
"""Pairs of a regular expression and its replacement, applied to our names in order."""


def rename(tensors: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Return the same tensors, each name rewritten by every pair of the table."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for ours, theirs in table:
            name = re.sub(ours, theirs, name)
        renamed[name] = tensor
    return renamed


def join_projections(tensors: Mapping[str, Tensor], into: str) -> dict[str, Tensor]:
    """Join `query.`, `key.` and `value.` of each attention, in this order, as `into` (weights and biases)."""
    joined: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if re.search(r"\b(key|value)\.(weight|bias)$", name):
            continue
        if re.search(r"\bquery\.(weight|bias)$", name):
            parts = [tensors[name.replace("query.", f"{each}.")] for each in ("query", "key", "value")]
            name, tensor = name.replace("query.", into), torch.cat(parts)
        joined[name] = tensor
    return joined
