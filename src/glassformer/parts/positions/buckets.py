"""Order as a learned number for each bucket of distances, added to the scores of every layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.foundation.order import RelativeConfig
from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.parts.positions.scheme import Positions, Room


class Buckets(Positions):
    """score + weight[bucket(distance), head] (Raffel et al. 2020, section 2.1).

    One table for all layers, as in T5, whose first layer holds it; nothing is added in cross-attention.
    """

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.weight = nn.Parameter(torch.empty(room.relative.n_buckets, room.n_heads))

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The learned numbers of each pair's bucket."""
        distance = keys[..., None, :] - queries[..., :, None]
        added = F.embedding(bucket(distance, self.room.relative, causal=self.room.causal), self.weight)
        return added.movedim(-1, -3).to(like.dtype)


def bucket(distance: Int[Tensor, "*pairs"], settings: RelativeConfig, *, causal: bool) -> Int[Tensor, "*pairs"]:
    """The bucket of key minus query: one a distance at first, then ranges that grow, and one for all beyond.

    Of N buckets for a side, the first N/2 hold one distance each. Distance n above falls into
    N/2 + floor(ln(n / (N/2)) / ln(max_distance / (N/2)) * (N - N/2)), at most N - 1. If causal, all buckets are for
    keys that lie back, and later keys count as distance 0; else the upper half of them is for later keys.
    """
    side, single = settings.sides(causal)
    edges = torch.tensor(first_distances(side, single, settings.max_distance), device=distance.device)
    far = (-distance).clamp(min=0) if causal else distance.abs()
    within = torch.bucketize(far, edges, right=True)
    return within if causal else within + side * (distance > 0)


def first_distances(side: int, single: int, max_distance: int) -> list[int]:
    """The smallest distance of each bucket of a side but the first, in whole numbers: a logarithm may miss by one."""
    ranges = side - single
    edges = list(range(1, single + 1))
    for step in range(1, ranges):
        # The first n with (n / single)^ranges >= (max_distance / single)^step, from a guess nearby.
        bound = max_distance**step * single ** (ranges - step)
        n = round(single * (max_distance / single) ** (step / ranges))
        while n**ranges >= bound:
            n -= 1
        while n**ranges < bound:
            n += 1
        edges.append(n)
    return edges
