"""The loss terms of a mixture of experts: penalties for overloaded experts and for large router logits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.nn.config import StackConfig
from glassformer.nn.feed_forward import Experts, Routing
from glassformer.nn.transformer import Transformer


class Routed(NamedTuple):
    """What one router decided in one forward pass."""

    side: str
    """"encoder" or "decoder"."""
    config: StackConfig
    routing: Routing


@contextmanager
def watch_routers(model: Transformer) -> Generator[list[Routed]]:
    """Collect what every router of the model decides inside the `with`; gradients flow through the records.

    Like `observe` for attention, this replaces a function of each module and afterwards puts it back, so that the model
    is exactly as before. A model without experts is not searched.
    """
    seen: list[Routed] = []
    watched: list[tuple[Experts, Callable[[Tensor, int], Routing]]] = []
    try:
        for side in ("encoder", "decoder"):
            config: StackConfig | None = getattr(model.config, side)
            if config is None or all(each.n_experts is None for each in getattr(model, side).settings):
                continue
            for module in getattr(model, side).modules():
                if isinstance(module, Experts):
                    watched.append((module, module.route))
                    module.route = _recording(module.route, seen, side, config)
        yield seen
    finally:
        for module, before in watched:
            module.route = before


def _recording(
    route: Callable[[Tensor, int], Routing], seen: list[Routed], side: str, config: StackConfig
) -> Callable[[Tensor, int], Routing]:
    def recording(logits: Tensor, experts_per_token: int) -> Routing:
        routing = route(logits, experts_per_token)
        seen.append(Routed(side, config, routing))
        return routing

    return recording


def routing_loss(seen: list[Routed], keeps: Mapping[str, Bool[Tensor, "B T"] | None]) -> Float[Tensor, ""] | None:
    """The sum of all routers' weighted penalties, or None without a router; `keeps`: each side's real positions."""
    total = None
    for side, config, routing in seen:
        keep = keeps[side]
        real = None if keep is None else keep.flatten()
        loss = config.balance_loss * balance_loss(routing, real)
        if config.router_z_loss:
            loss = loss + config.router_z_loss * z_loss(routing, real)
        total = loss if total is None else total + loss
    return total


def balance_loss(routing: Routing, real: Bool[Tensor, " N"] | None = None) -> Float[Tensor, ""]:
    """The load-balancing loss, E * sum over experts e of f_e P_e; it is 1 if all experts have an equal load.

    Fedus et al. 2022, equations 4 to 6, without alpha. f_e is the share of all choices that fell on e, and P_e the mean
    probability that the router gave it, both over the real positions only. f has no gradient.
    """
    n_experts = routing.chances.shape[-1]
    counted = _real_weights(routing, real)
    choices = torch.zeros_like(routing.chances).scatter_(1, routing.chosen, 1.0 / routing.chosen.shape[-1])
    return n_experts * ((counted @ choices) * (counted @ routing.chances)).sum()


def z_loss(routing: Routing, real: Bool[Tensor, " N"] | None = None) -> Float[Tensor, ""]:
    """The mean over real positions of log(sum over experts of exp(logit))^2 (Zoph et al. 2022, ST-MoE, equation 5)."""
    return _real_weights(routing, real) @ routing.logits.to(routing.chances.dtype).logsumexp(-1).square()


def _real_weights(routing: Routing, real: Tensor | None) -> Tensor:
    """Weights that turn a sum over positions into the mean over the real ones: 1/n for those, 0 elsewhere."""
    if real is None:
        real = routing.chances.new_ones(len(routing.chances), dtype=torch.bool)
    return real.to(routing.chances.dtype) / real.sum().clamp(min=1)
