"""Attention rules, by name: what is computed. Each is specified by its weights and has backends that compute it.

>>> from glassformer import ATTEND
>>> sorted(ATTEND["softmax"]) == sorted(RULES["softmax"].backends)
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F

from glassformer.base.errors import ConfigError
from glassformer.base.part import explained
from glassformer.base.registry import lookup
from glassformer.base.shapes import Float, Keys, Queries, Tensor, Values, Weights
from glassformer.nn import linear
from glassformer.nn.attention import (
    Attend,
    Weigh,
    attention_weights,
    dot_products,
    reference,
    softmax_over_readable,
    weighted_sum,
)
from glassformer.nn.backends import Normalise, matmul, sdpa, softmax
from glassformer.nn.flex import flex, obstacle
from glassformer.nn.flex import pays as skipping_pays
from glassformer.nn.lowered import Lowered
from glassformer.nn.mask import Mask
from glassformer.nn.sparse import FEW, pays, sparse


@runtime_checkable
class Pick(Protocol):
    """pick(device, T, S, mask): the backend that `auto` uses for a device type and two lengths, and the reason.

    The reason is to be formatted with `device`, `T` and `S`: lengths in it would be part of what is compiled.
    `flexible`: whether FlexAttention supports the case (`obstacle` in nn/flex.py). `dropout`: the probability on
    attention weights. A rule uses what its backends depend on.
    """

    def __call__(
        self, device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
    ) -> tuple[str, str]:
        """The backend's name and the reason."""
        ...


@dataclass(frozen=True)
class Rule:
    """What is computed (`weigh`), the backends that compute it, and which of them `auto` uses (`pick`)."""

    weigh: Weigh
    backends: Mapping[str, Attend]
    pick: Pick


def rule_of_scores(weigh: Weigh, normalise: Normalise) -> Rule:
    """Make a rule that differs from softmax only in how a row of scores becomes weights, with all its backends."""

    @explained
    def reference(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
        return weighted_sum(F.dropout(weigh(q, k, mask, scale=scale), dropout), v, mask).to(q.dtype)

    @explained
    def products(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
        return matmul(q, k, v, mask, scale=scale, dropout=dropout, normalise=normalise)

    @explained
    def blocks(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
        return sparse(q, k, v, mask, scale=scale, dropout=dropout, normalise=normalise)

    def pick(
        device: str, T: int, S: int, mask: Mask | None = None, *, flexible: bool = True, dropout: float = 0.0
    ) -> tuple[str, str]:
        del flexible, dropout
        if mask is not None and pays(mask, T, S):
            return "sparse", FEW
        return "matmul", "on {device}: no fused kernel has this rule"

    @explained
    def auto(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
        name, _ = pick(q.device.type, q.shape[-2], k.shape[-2], mask)
        chosen = blocks if name == "sparse" else products
        return chosen(q, k, v, mask, scale=scale, dropout=dropout)

    return Rule(weigh, {"auto": auto, "reference": reference, "matmul": products, "sparse": blocks}, pick)


MATMUL_UP_TO = 256 * 256
"""Up to this many scores (T x S) of one head, two matrix products beat the fused kernel on a CPU (`make bench`)."""


def pick(
    device: str,
    T: int,
    S: int,
    mask: Mask | None = None,
    *,
    flexible: bool = True,
    dropout: float = 0.0,
    narrow: bool = False,
) -> tuple[str, str]:
    """As `Pick`. `narrow`: the dtype is bfloat16 or float16."""
    if mask is not None and mask.value_bias is not None:
        return "matmul", "a value bias needs the attention weights, which the fused kernel does not store"
    if flexible and device == "cuda" and mask is not None and skipping_pays(mask, T, S):
        return "flex", "on {device}: packed documents leave most blocks of {T} x {S} scores unread, and it skips them"
    if mask is not None and pays(mask, T, S):
        return "sparse", FEW
    if device != "cpu":
        return "sdpa", "the fused kernel is fastest on {device}"
    if narrow and T == 1:
        return "sdpa", "one query of 16-bit numbers on a CPU: the fused kernel is several times as fast as two products"
    if T * S <= MATMUL_UP_TO:
        return "matmul", "{T} x {S} scores on a CPU: two products beat the fused kernel"
    if dropout:
        return "matmul", "on a CPU no fused kernel has dropout, so all {T} x {S} scores exist"
    if mask is not None and mask.bias is not None and mask.bias.requires_grad:
        return "matmul", "on a CPU no fused kernel learns a bias, so all {T} x {S} scores exist"
    return "sdpa", "{T} x {S} scores on a CPU: the fused kernel never holds them whole"


@explained
def auto(q: Queries, k: Keys, v: Values, mask: Mask, *, scale: float, dropout: float = 0.0) -> Queries:
    """Attention by the backend that `pick` names for these inputs."""
    flexible = obstacle(q.device.type, q.shape[-1], q.dtype, learns=False, dropout=dropout) is None
    narrow = q.dtype.itemsize < 4
    name, _ = pick(q.device.type, q.shape[-2], k.shape[-2], mask, flexible=flexible, dropout=dropout, narrow=narrow)
    backend = {"matmul": matmul, "sparse": sparse, "sdpa": sdpa, "flex": flex}[name]
    return backend(q, k, v, mask, scale=scale, dropout=dropout)


def plus_one_weights(q: Queries, k: Keys, mask: Mask, *, scale: float) -> Weights:
    """exp(score) / (1 + sum over the readable keys of exp(score)) (Miller 2023, "Attention is off by one").

    This is a softmax over the keys and one extra key, whose score and value are 0. A row sums to less than 1.
    """
    scores = dot_products(q, k, scale=scale)
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return F.pad(scores, (0, 1)).softmax(-1)[..., :-1]


def plus_one_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """The same weights without a padded copy; scores are shifted by their largest (at least 0) to avoid overflow."""
    wide = lowered.add_to(scores.to(torch.promote_types(scores.dtype, torch.float32)))
    largest = wide.detach().amax(-1, keepdim=True).clamp(min=0.0)
    powers = (wide - largest).exp()
    return (powers / (powers.sum(-1, keepdim=True) + (-largest).exp())).to(scores.dtype)


def sigmoid_weights(q: Queries, k: Keys, mask: Mask, *, scale: float) -> Weights:
    """sigmoid(score - log n), where n is how many keys the query may read (Ramapuram et al. 2024, section 3).

    In the paper n is the sequence length. Counting readable keys gives the same if all are read. Otherwise it is the
    only n with which a row's output depends neither on padding nor on how long the row will become.
    """
    scores = dot_products(q, k, scale=scale)
    if mask.bias is not None:
        scores = scores + mask.bias
    allowed = mask.allowed(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is None:
        return (scores - math.log(scores.shape[-1])).sigmoid()
    n = allowed.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
    return (scores - n.log()).sigmoid().masked_fill(~allowed, 0.0)


def sigmoid_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
    """The same weights, with the mask added to the scores: the sigmoid of -inf is 0."""
    wide = lowered.add_to(scores.to(torch.promote_types(scores.dtype, torch.float32)))
    if lowered.allowed is None:
        return (wide - math.log(scores.shape[-1])).sigmoid().to(scores.dtype)
    n = lowered.allowed.sum(-1, keepdim=True).clamp(min=1).to(wide.dtype)
    return (wide - n.log()).sigmoid().to(scores.dtype)


CAP = 50.0
"""The cap of Gemma 2's attention layers."""


def softcap_rule(cap: float = CAP) -> Rule:
    """The rule softmax(cap * tanh(q k^T * scale / cap) + bias) (Gemma Team 2024, Gemma 2, section 2).

    The bias, like the mask, is added after capping. Errors: `ConfigError` for a cap that is not positive.
    """
    if not cap > 0.0:
        raise ConfigError(f"softcap must be above 0, as scores are kept within it; got {cap}. Try softcap={CAP}.")

    def capped(scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        return cap * (scores / cap).tanh()

    def softcap_weights(q: Queries, k: Keys, mask: Mask, *, scale: float) -> Weights:
        return softmax_over_readable(capped(dot_products(q, k, scale=scale)), mask)

    def softcap_of_scores(scores: Float[Tensor, "*rows S"], lowered: Lowered) -> Float[Tensor, "*rows S"]:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return softmax(capped(wide), lowered).to(scores.dtype)

    return rule_of_scores(softcap_weights, softcap_of_scores)


RULES: dict[str, Rule] = {
    "softmax": Rule(
        attention_weights,
        {"auto": auto, "reference": reference, "matmul": matmul, "sdpa": sdpa, "sparse": sparse, "flex": flex},
        pick,
    ),
    "softmax_plus_one": rule_of_scores(plus_one_weights, plus_one_of_scores),
    "sigmoid": rule_of_scores(sigmoid_weights, sigmoid_of_scores),
    "softcap": softcap_rule(),
    "linear": Rule(
        linear.linear_weights,
        {"auto": linear.auto, "reference": linear.reference, "sums": linear.sums},
        linear.pick,
    ),
}
ATTEND: dict[str, Mapping[str, Attend]] = {name: rule.backends for name, rule in RULES.items()}


def choose(rule: str, backend: str, *, cap: float = CAP) -> tuple[Attend, Weigh]:
    """Look up a backend of a rule, and the function that computes the rule's weights; only "softcap" uses `cap`.

    Errors: `ConfigError` for an unknown name, and for a backend that only other rules have.
    """
    chosen = softcap_rule(cap) if rule == "softcap" else lookup(RULES, rule, "attention_rule")
    if backend not in chosen.backends and any(backend in other.backends for other in RULES.values()):
        there = ", ".join(repr(name) for name in sorted(chosen.backends))
        raise ConfigError(f"attention_rule={rule!r} has no backend {backend!r}; it has {there}. Try attention='auto'.")
    return lookup(chosen.backends, backend, "attention"), chosen.weigh
