"""T5's relative positions: a learned number for each bucket of distances, added to the scores of every layer."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.order import RelativeConfig
from glassformer.base.recording import constant
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.nn.positions.scheme import Positions, Room


class Buckets(Positions):
    """score + weight[bucket(distance), head] (Raffel et al. 2020, section 2.1).

    All layers share one table, as in T5 (where the first layer holds it). Cross-attention adds nothing.
    """

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.weight = nn.Parameter(torch.empty(room.relative.n_buckets, room.n_heads))

    def score_bias(
        self, queries: Int[Tensor, "*batch T"], keys: Int[Tensor, "*batch S"], like: Tensor
    ) -> Float[Tensor, "*batch H T S"]:
        """The learned number of each pair's bucket, per head."""
        distance = keys[..., None, :] - queries[..., :, None]
        added = F.embedding(bucket(distance, self.room.relative, causal=self.room.causal), self.weight)
        return added.movedim(-1, -3).to(like.dtype)


def bucket(distance: Int[Tensor, "*pairs"], settings: RelativeConfig, *, causal: bool) -> Int[Tensor, "*pairs"]:
    """The bucket of each distance (key minus query): one per short distance, then growing ranges, then all beyond.

    A side has N buckets, and the first N/2 hold one distance each. A larger distance n falls into bucket
    N/2 + floor(ln(n / (N/2)) / ln(max_distance / (N/2)) * (N - N/2)), at most N - 1. If causal, all buckets are for
    earlier keys, and later keys count as distance 0; otherwise the upper half of the buckets is for later keys.
    """
    side, single = settings.sides(causal)
    edges = constant(first_distances(side, single, settings.max_distance), torch.long, distance.device)
    far = (-distance).clamp(min=0) if causal else distance.abs()
    within = torch.bucketize(far, edges, right=True)
    return within if causal else within + side * (distance > 0)


@cache
def first_distances(side: int, single: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance of each bucket of a side except the first; by integers, as logarithms may be off by one."""
    ranges = side - single
    edges = list(range(1, single + 1))
    for step in range(1, ranges):
        # The first n with (n / single)^ranges >= (max_distance / single)^step, searched from a guess nearby.
        bound = max_distance**step * single ** (ranges - step)
        n = round(single * (max_distance / single) ** (step / ranges))
        while n**ranges >= bound:
            n -= 1
        while n**ranges < bound:
            n += 1
        edges.append(n)
    return tuple(edges)
