"""Renaming our parameters to other libraries' names by a table of patterns, and joining projections where they do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Table = Sequence[tuple[str, str]]
"""Pairs of a regular expression and its replacement, applied to our names in order."""
PROJECTIONS = r"\b(query|key|value)\.(?:weight|bias)$"
"""The names of the projections that other libraries join, in this order."""


def rename(tensors: Mapping[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Return the same tensors, each name rewritten by every pair of the table."""
    return {renamed(name, table): tensor for name, tensor in tensors.items()}


def renamed(name: str, table: Table) -> str:
    """Return a name rewritten by every pair of the table."""
    for ours, theirs in table:
        name = re.sub(ours, theirs, name)
    return name


def join_projections(tensors: Mapping[str, Tensor], into: str, pieces: int = 1) -> dict[str, Tensor]:
    """Join `query.`, `key.` and `value.` of each attention, in this order, as `into` (weights and biases).

    With several `pieces`, those of the first head come first, then those of the second, and so on.
    """
    joined: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        part = re.search(PROJECTIONS, name)
        if part and part[1] != "query":
            continue
        if part:
            parts = [tensors[name.replace("query.", f"{each}.")] for each in ("query", "key", "value")]
            name, tensor = name.replace("query.", into), torch.cat(parts)
            if pieces > 1:
                tensor = torch.cat([each.unflatten(0, (pieces, -1)) for each in parts], 1).flatten(0, 1)
        joined[name] = tensor
    return joined


def part_of(joined: Tensor, which: str, pieces: int = 1) -> Tensor:
    """The query, key or value in a tensor that `join_projections` made."""
    parts = joined.unflatten(0, (pieces, 3, -1)).unbind(1)
    return parts[("query", "key", "value").index(which)].flatten(0, 1)
