"""Attention as functions of (q, k, v, mask), without parameters.

A rule says what is computed; a backend says how. Every rule has a backend `reference`, its equation written out, and
its other backends agree with it in value and gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from glassformer.base.errors import ConfigError
from glassformer.base.pattern import Pattern
from glassformer.base.registry import lookup
from glassformer.nn.attend import linear
from glassformer.nn.attend.auto import auto, pick
from glassformer.nn.attend.flex import flex
from glassformer.nn.attend.mask import Mask
from glassformer.nn.attend.matmul import matmul
from glassformer.nn.attend.plus_one import plus_one_of_scores, plus_one_weights
from glassformer.nn.attend.reference import attention_weights, reference
from glassformer.nn.attend.rule import Attend, Pick, Rule, Weigh, rule_of_scores
from glassformer.nn.attend.sdpa import sdpa
from glassformer.nn.attend.sigmoid import sigmoid_of_scores, sigmoid_weights
from glassformer.nn.attend.softcap import CAP, softcap
from glassformer.nn.attend.sparse import sparse
from glassformer.nn.attend.value_bias import ValueBias

__all__ = [
    "ATTEND",
    "RULES",
    "Attend",
    "Mask",
    "Pattern",
    "Pick",
    "Rule",
    "ValueBias",
    "Weigh",
    "attention_weights",
    "choose",
    "pick",
]

RULES: dict[str, Rule] = {
    "softmax": Rule(
        attention_weights,
        {"auto": auto, "reference": reference, "matmul": matmul, "sdpa": sdpa, "sparse": sparse, "flex": flex},
        pick,
    ),
    "softmax_plus_one": rule_of_scores(plus_one_weights, plus_one_of_scores),
    "sigmoid": rule_of_scores(sigmoid_weights, sigmoid_of_scores),
    "softcap": softcap(),
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
    chosen = softcap(cap) if rule == "softcap" else lookup(RULES, rule, "attention_rule")
    if backend not in chosen.backends and any(backend in other.backends for other in RULES.values()):
        there = ", ".join(repr(name) for name in sorted(chosen.backends))
        raise ConfigError(f"attention_rule={rule!r} has no backend {backend!r}; it has {there}. Try attention='auto'.")
    return lookup(chosen.backends, backend, "attention"), chosen.weigh
