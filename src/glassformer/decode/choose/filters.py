"""Filters for sampling that keep the more likely tokens: temperature, top-k, top-p, min-p, typical.

Each function makes a filter from its setting. The filter maps logits [B, V] to logits [B, V], with -inf where a token
can no longer be drawn. At least one token stays. Of equal logits, the lower id counts as more likely, as in greedy
decoding.
"""

from __future__ import annotations

import math

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.decode.choose.context import ByLogits, Filter


def temperature(value: float) -> Filter:
    """z / t (Ackley et al. 1985); t below 1 sharpens the distribution. Errors: `ConfigError` unless 0 < t < inf."""
    if not 0 < value < math.inf:
        raise ConfigError(f"temperature must be above 0 and finite, as logits are divided by it; got {value}. Try 0.8.")

    def scaled(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        largest = logits.max(-1, keepdim=True).values.clamp(min=torch.finfo(logits.dtype).min)
        least = torch.finfo(logits.dtype).tiny  # a smaller t would be 0 in this dtype
        return (logits - largest) / max(value, least)  # no value is above 0, so a small t can overflow only to -inf

    return ByLogits(scaled)


def top_k(k: int) -> Filter:
    """Keep the k most likely tokens, or all if there are fewer (Fan et al. 2018, 5.1). Errors: `ConfigError`."""
    if k < 1:
        raise ConfigError(f"top_k must be at least 1; got {k}. Try top_k=50.")

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if k >= logits.shape[-1]:
            return logits
        least = logits.topk(k).values[:, -1:]
        above, equal = logits > least, logits == least
        room = k - above.sum(-1, keepdim=True)
        return only(logits, above | (equal & (equal.cumsum(-1) <= room)))

    return ByLogits(kept)


def top_p(p: float) -> Filter:
    """Keep the nucleus: the fewest most likely tokens with total probability at least p (Holtzman et al. 2020, eq. 2).

    p = 1 keeps all. Errors: `ConfigError` unless 0 < p <= 1.
    """
    check_share("top_p", p)

    def nucleus(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return logits if p == 1 else only(logits, of_mass(logits.softmax(-1), -logits, p))

    return ByLogits(nucleus)


def min_p(share: float) -> Filter:
    """Keep tokens at least `share` times as likely as the most likely one (Nguyen et al. 2024, equation 2).

    0 keeps all. Errors: `ConfigError` unless 0 <= share <= 1.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"min_p must be from 0 to 1; got {share}. Try min_p=0.05.")
    floor = math.log(share) if share else -math.inf

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        return only(logits, logits >= logits.max(-1, keepdim=True).values + floor)

    return ByLogits(kept)


def typical(p: float) -> Filter:
    """Keep typical tokens: those whose surprise is nearest to the entropy, with total probability at least p.

    Tokens are taken in the order of | -log p(y) - H | (Meister et al. 2023, equation 10). p = 1 keeps all. Errors:
    `ConfigError`.
    """
    check_share("typical_p", p)

    def kept(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if p == 1:
            return logits
        log_p = logits.log_softmax(-1)
        probabilities = log_p.exp()
        entropy = -(probabilities * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1, keepdim=True)
        return only(logits, of_mass(probabilities, (-log_p - entropy).abs(), p))

    return ByLogits(kept)


def of_mass(probabilities: Float[Tensor, "B V"], rank: Float[Tensor, "B V"], p: float) -> Bool[Tensor, "B V"]:
    """True at the fewest tokens with total probability at least p, in the order of `rank` (smallest first, then id)."""
    order = rank.argsort(dim=-1, stable=True)
    mass = probabilities.gather(-1, order).cumsum(-1)
    before = torch.nn.functional.pad(mass[:, :-1], (1, 0))  # a token stays if those before it do not suffice
    least = max(p, torch.finfo(probabilities.dtype).tiny)  # a smaller p would be 0 in this dtype and keep none
    return torch.zeros_like(probabilities, dtype=torch.bool).scatter(-1, order, before < least)


def only(logits: Float[Tensor, "B V"], keep: Bool[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Set logits to -inf where `keep` is False."""
    return logits.masked_fill(~keep, -math.inf)


def check_share(name: str, p: float) -> None:
    """Refuse a probability mass that is not above 0 and at most 1. Errors: `ConfigError`."""
    if not 0 < p <= 1:
        raise ConfigError(
            f"{name} must be above 0 and at most 1, the share of the probability to keep; got {p}. Try 0.9."
        )
