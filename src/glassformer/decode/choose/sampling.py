"""The settings of sampling: temperature, filters, penalties and the random seed. Imports no torch.

`decode/choose/draw.py` makes from them the function that `generate` calls to choose tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glassformer.base.bounds import at_least, at_most, placed
from glassformer.base.errors import ConfigError, all_of
from glassformer.base.typed import check_types

ADVICE = {
    "temperature": "0.8; 0 is greedy decoding",
    "top_k": "50, or leave it out for no limit",
    "top_p": "0.9; 1 keeps all tokens",
    "min_p": "0.05; 0 keeps all tokens",
    "typical_p": "0.9; 1 keeps all tokens",
    "repetition_penalty": "1.2; 1 turns it off",
    "frequency_penalty": "0.5; 0 turns it off",
    "presence_penalty": "0.5; 0 turns it off",
    "no_repeat_ngram": "3, or leave it out to allow repetition",
    "contrastive_alpha": "0.6; 0 turns it off",
}
"""What to try instead of a number out of bounds: a usual one, and the one that turns the setting off."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; a frozen dataclass, checked when made.

    The settings apply in this order: min_new_tokens, repetition, frequency and presence penalty, no_repeat_ngram; then
    temperature, top_k, top_p, typical_p, min_p. At temperature 0 the most likely token is chosen; the last four, which
    only affect sampling, are then refused (except top_k with contrastive search). Errors: `ConfigError`.
    """

    section: ClassVar[str] = ""

    temperature: float = 1.0
    """Sampling temperature, by which logits are divided; 0: greedy decoding, which takes the most probable token."""
    top_k: int | None = None
    """Top-k sampling: from this many most probable tokens; unset: all."""
    top_p: float = 1.0
    """Nucleus sampling: from the fewest most probable tokens that together have this probability; 1: all."""
    min_p: float = 0.0
    """Min-p sampling: from tokens at least this share as probable as the most probable one; 0: all."""
    typical_p: float = 1.0
    """Typical sampling: from the tokens nearest the expected surprise that together have this probability; 1: all."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens already read or written (multiplies negative ones); above 1: fewer repeats."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time it has been written."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of a token already written."""
    no_repeat_ngram: int | None = None
    """No n-gram of this length comes twice, prompt included."""
    min_new_tokens: int = 0
    """Shortest answer, in tokens."""
    contrastive_alpha: float = 0.0
    """Contrastive search among top_k: weight of the penalty for tokens similar to the text so far; 0: off."""
    seed: int = 1
    """Random seed of sampling; each answer has random numbers of its own, whatever batch it is in."""

    def __post_init__(self) -> None:
        check_types(self, self.section)
        zero = ("temperature", "min_p", "min_new_tokens", "seed", "contrastive_alpha")
        at_least(self, self.section, 0, *zero, advice=ADVICE)
        at_least(self, self.section, 1, "top_k", "no_repeat_ngram", advice=ADVICE)
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                raise self._refused(name, "above 0 and at most 1")
        if not 0 < self.repetition_penalty < math.inf:
            raise self._refused("repetition_penalty", "above 0 and finite")
        for name in ("frequency_penalty", "presence_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise self._refused(name, "a finite number")
        at_most(self, self.section, 1, "min_p", "contrastive_alpha", advice=ADVICE)
        at_most(self, self.section, 2**64 - 1, "seed")
        at_most(self, self.section, 2**31 - 1, "top_k", "no_repeat_ngram", "min_new_tokens", advice=ADVICE)
        self._check_use()

    def _refused(self, name: str, rule: str) -> ConfigError:
        where = placed(self.section, name)
        return ConfigError(
            f"{where} must be {rule}; got {getattr(self, name)}. Try {where}={ADVICE[name]}.", setting=name
        )

    def _check_use(self) -> None:
        """Refuse sampling settings where nothing is drawn, instead of ignoring them silently."""
        where = placed(self.section, "temperature")
        if self.contrastive_alpha and self.temperature:
            raise ConfigError(
                f"Contrastive search does not sample; got {placed(self.section, 'contrastive_alpha')}="
                f"{self.contrastive_alpha} with {where}={self.temperature}. Set one of them to 0.0.",
                setting="contrastive_alpha",
            )
        neutral = {
            "top_k": self.top_k if self.contrastive_alpha else None,
            "top_p": 1.0,
            "min_p": 0.0,
            "typical_p": 1.0,
        }
        given = [name for name, value in neutral.items() if getattr(self, name) != value]
        if self.temperature == 0 and given:
            what, one = [placed(self.section, name) for name in given], len(given) == 1
            came = all_of([f"{place}={getattr(self, name)}" for place, name in zip(what, given, strict=True)])
            raise ConfigError(
                f"{all_of(what)} {'selects' if one else 'select'} the tokens to sample from, but {where}=0 does not "
                f"sample; got {came}. Try {where}=1.0, or remove {what[0] if one else 'them'}.",
                setting=given[0] if one else None,
            )


GREEDY = Sampling(temperature=0.0)
"""Greedy decoding: the most likely token at each step."""
