"""Floor 1: attention as functions of (q, k, v, mask), without parameters.

A rule says what is computed; a backend says how. Every rule has a backend `reference`, its equation written out, and
its other backends agree with it in value and gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from glassformer.attend import linear
from glassformer.attend.auto import auto, pick
from glassformer.attend.flex import flex
from glassformer.attend.mask import Mask
from glassformer.attend.matmul import matmul
from glassformer.attend.plus_one import plus_one_of_scores, plus_one_weights
from glassformer.attend.reference import attention_weights, reference
from glassformer.attend.rule import Attend, Pick, Rule, Weigh, rule_of_scores
from glassformer.attend.sdpa import sdpa
from glassformer.attend.sigmoid import sigmoid_of_scores, sigmoid_weights
from glassformer.attend.softcap import CAP, softcap
from glassformer.attend.sparse import sparse
from glassformer.attend.value_bias import ValueBias
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.pattern import Pattern
from glassformer.foundation.registry import lookup

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
