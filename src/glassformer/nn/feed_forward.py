"""The feed-forward branch: the same few linear maps at every position, plain, gated, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.part import Part
from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Int, Tensor


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016, section 2), as in GPT-2."""
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """max(x, 0)^2 (So et al. 2021, Primer, section 3)."""
    return F.relu(x).square()


def identity(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return x itself: a gated branch is then bilinear (Shazeer 2020, equation 5), a plain one linear."""
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "relu_squared": relu_squared,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}


class FeedForward(Part):
    """FFN(x) = activation(x W_up + b_up) W_down + b_down (Vaswani et al. 2017, equation 2); dropout before W_down.

    >>> branch = FeedForward(8, 32, torch.relu)
    >>> branch(torch.zeros(2, 5, 8)).shape  # [B, T, D], as it came in
    torch.Size([2, 5, 8])
    """

    gated = False

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        *,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.activation = activation
        if self.gated:
            self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """The map at each position."""
        return self.down(self.dropout(self.inner(x)))

    def inner(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where F"]:
        """The numbers that W_down reads, before dropout."""
        return self.activation(self.up(x))

    @property
    def writers(self) -> list[nn.Linear]:
        """The maps that write to the residual stream."""
        return [self.down]


class GatedFeedForward(FeedForward):
    """FFN(x) = (activation(x W_gate) * (x W_up)) W_down (Shazeer 2020, equations 5 and 6), with optional biases.

    Its name depends on the activation: GLU (sigmoid, Dauphin et al. 2017), ReGLU (relu), GEGLU (gelu), SwiGLU (silu) or
    bilinear (identity). It has three matrices, so with 2/3 of the inner width it costs as much as the plain one.
    """

    gated = True

    def inner(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where F"]:
        """As `FeedForward.inner`."""
        return self.activation(self.gate(x)) * self.up(x)


EXPERTS: dict[str, type[FeedForward]] = {"plain": FeedForward, "gated": GatedFeedForward}
"""The kinds of one expert."""


class Routing(NamedTuple):
    """How a router assigns N positions to k of E experts each."""

    logits: Float[Tensor, "N E"]
    chances: Float[Tensor, "N E"]
    """softmax(logits)."""
    chosen: Int[Tensor, "N k"]
    """The k most likely experts, best first."""
    weights: Float[Tensor, "N k"]
    """The factors for their outputs."""


def route(logits: Float[Tensor, "N E"], experts_per_token: int) -> Routing:
    """Choose the k best experts for each position, and the weight of each.

    For k > 1, weights are a softmax over the chosen experts only (Shazeer et al. 2017, equations 3 and 5, without
    noise). For k = 1, the weight is the expert's probability (Fedus et al. 2022, equation 2): a constant 1 would give
    the router no gradient.
    """
    chances = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    best, chosen = chances.topk(experts_per_token, dim=-1)
    return Routing(logits, chances, chosen, best if experts_per_token == 1 else best / best.sum(-1, keepdim=True))


class Experts(Part):
    """y = sum over the chosen experts e of weight_e(x) expert_e(x) (Shazeer et al. 2017, equation 1).

    Experts have no capacity limit and no token is dropped, so a row's output does not depend on the other rows, except
    for rounding (a product over more positions may round differently). If the load is unbalanced, some experts compute
    more. Which positions an expert gets depends on values, so `torch.compile` breaks the graph here. The router
    computes in the dtype of its weight even under autocast (Fedus et al. 2022, section 2.4). To watch the balance,
    replace `route`.
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
        if experts_per_token > n_experts:
            raise ConfigError(f"experts_per_token must be at most n_experts={n_experts}; got {experts_per_token}.")
        self.d_model = d_model
        self.experts_per_token = experts_per_token
        self.route: Callable[[Tensor, int], Routing] = route
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(
            lookup(EXPERTS, expert, "expert")(d_model, d_ff, activation, dropout=dropout, bias=bias)
            for _ in range(n_experts)
        )

    def forward(self, x: Float[Tensor, "*where D"]) -> Float[Tensor, "*where D"]:
        """Apply the chosen experts at each position. Each expert gets all its positions in one batch."""
        rows, k = x.reshape(-1, x.shape[-1]), self.experts_per_token
        with torch.autocast(x.device.type, enabled=False):
            routing = self.route(self.router(rows.to(self.router.weight.dtype)), k)
        chosen = routing.chosen.flatten()  # [N k]: entry i is an expert for position i // k
        order = chosen.argsort(stable=True)
        shares = chosen.bincount(minlength=len(self.experts)).tolist()
        given = rows[order // k].split(shares)
        answers = torch.cat([expert(each) for expert, each in zip(self.experts, given, strict=True)])
        answers = answers[order.argsort()].unflatten(0, (-1, k))  # back in the order of the positions
        return (answers * routing.weights[..., None].to(answers.dtype)).sum(1).view_as(x)

    @property
    def writers(self) -> list[nn.Linear]:
        """The linear maps that write to the residual stream."""
        return [writer for expert in self.experts for writer in expert.writers]  # pyright: ignore


FEED_FORWARDS: dict[str, Callable[..., nn.Module]] = {
    "plain": FeedForward,
    "gated": GatedFeedForward,
    "experts": Experts,
}
"""Each makes a branch from (d_model, d_ff, activation, dropout=, bias=); experts also need `StackConfig.routing`."""
