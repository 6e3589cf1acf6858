"""Mixture of experts: several feed-forward maps, of which a router picks a few for each position."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from glassformer.foundation.shapes import Float, Int, Tensor
from glassformer.parts.feed_forward import FeedForward, GatedFeedForward

EXPERTS: dict[str, type[FeedForward] | type[GatedFeedForward]] = {"plain": FeedForward, "gated": GatedFeedForward}
"""What one expert can be."""


class Routing(NamedTuple):
    """What a router says of N positions and E experts, of which k are chosen."""

    logits: Float[Tensor, "N E"]
    chances: Float[Tensor, "N E"]
    """softmax(logits)."""
    chosen: Int[Tensor, "N k"]
    """The most likely experts, the best first."""
    weights: Float[Tensor, "N k"]
    """What their outputs are multiplied by."""


def route(logits: Float[Tensor, "N E"], experts_per_token: int) -> Routing:
    """The k best experts of each position, and the weight of each.

    k > 1: the softmax over the chosen alone (Shazeer et al. 2017, equations 3 and 5, without noise). k = 1: the chance
    itself (Fedus et al. 2022, equation 2), as a weight of 1 would teach the router nothing.
    """
    chances = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    best, chosen = chances.topk(experts_per_token, dim=-1)
    return Routing(logits, chances, chosen, best if experts_per_token == 1 else best / best.sum(-1, keepdim=True))


class Experts(nn.Module):
    """y = sum over the chosen experts e of weight_e(x) expert_e(x) (Shazeer et al. 2017, equation 1).

    No expert is ever full and no token dropped, so a row's answer does not depend on its neighbours (but for its last
    bits: an expert's product over more positions may be rounded otherwise). Where the balance is poor, some experts
    have more to do. Whom they serve depends on values, so `torch.compile` breaks the graph here. The router computes
    in its weight's dtype also under autocast (Fedus et al. 2022, section 2.4). `route` is the seam at which the balance
    is watched.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        *,
        n_experts: int,
        experts_per_token: int,
        expert: str = "plain",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.experts_per_token = experts_per_token
        self.route = route
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(
            EXPERTS[expert](d_model, d_ff, activation, dropout=dropout, bias=bias) for _ in range(n_experts)
        )

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position. Each expert sees its own positions in one piece."""
        rows, k = x.reshape(-1, x.shape[-1]), self.experts_per_token
        with torch.autocast(x.device.type, enabled=False):
            routing = self.route(self.router(rows.to(self.router.weight.dtype)), k)
        asked = routing.chosen.flatten()  # [N k]: number i asks for position i // k
        order = asked.argsort(stable=True)
        shares = asked.bincount(minlength=len(self.experts)).tolist()
        given = rows[order // k].split(shares)
        answers = torch.cat([expert(each) for expert, each in zip(self.experts, given, strict=True)])
        answers = answers[order.argsort()].unflatten(0, (-1, k))  # back in the order of the positions
        return (answers * routing.weights[..., None].to(answers.dtype)).sum(1).view_as(x)

    @property
    def writers(self) -> list[nn.Linear]:
        """The maps that write to the residual stream."""
        return [writer for expert in self.experts for writer in expert.writers]  # pyright: ignore
