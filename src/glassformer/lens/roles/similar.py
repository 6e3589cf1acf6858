"""Finding similar heads: the divergence of the attention weights of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from glassformer.lens.ablate import Head
from glassformer.lens.record import Map
from glassformer.lens.roles.metrics import divergence
from glassformer.lens.roles.view import View


class Pair(NamedTuple):
    """Two heads of one kind of block, and their divergence."""

    one: Head
    other: Head
    divergence: float
    """Mean Jensen-Shannon divergence of their rows, in bits, 0 to 1 (Clark et al. 2019, section 6)."""


def similar(found: Sequence[Map], views: dict[str, View]) -> list[Pair]:
    """Return all pairs of heads within each kind of block, the most similar first."""
    pairs: list[Pair] = []
    for block, view in views.items():
        heads = [
            ((block, each.layer, head), each.weights[:, head], each.allowed)
            for each in found
            if each.block == block
            for head in range(each.weights.shape[1])
        ]
        for (one, p, allowed), (other, q, _) in combinations(heads, 2):
            pairs.append(Pair(one, other, divergence(p, q, allowed, view.counted)))
    return sorted(pairs, key=lambda each: each.divergence)
