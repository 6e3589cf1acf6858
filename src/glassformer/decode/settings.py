"""The settings of decoding: of sampling, and of a beam search. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glassformer.base.contradictions import BEAM, SAMPLING, refuse
from glassformer.base.settings import check, setting

MOST = 2**31 - 1


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; a frozen dataclass, checked when made.

    The settings apply in this order: min_new_tokens, repetition, frequency and presence penalty, no_repeat_ngram; then
    temperature, top_k, top_p, typical_p, min_p. At temperature 0 the most likely token is chosen; the last four, which
    only affect sampling, are then refused (except top_k with contrastive search). Errors: `ConfigError`.
    """

    section: ClassVar[str] = ""
    drawn: ClassVar[tuple[str, ...]] = ("top_k", "top_p", "min_p", "typical_p")
    """Those that have no effect where nothing is drawn; contrastive search reads the first."""

    temperature: float = setting(1.0, 0, advice="0.8; 0 is greedy decoding")
    """Sampling temperature, by which logits are divided; 0: greedy decoding, which takes the most probable token."""
    top_k: int | None = setting(None, 1, MOST, advice="50, or leave it out for no limit")
    """Top-k sampling: from this many most probable tokens; unset: all."""
    top_p: float = setting(1.0, above=0, most=1, advice="0.9; 1 keeps all tokens")
    """Nucleus sampling: from the fewest most probable tokens that together have this probability; 1: all."""
    min_p: float = setting(0.0, 0, 1, advice="0.05; 0 keeps all tokens")
    """Min-p sampling: from tokens at least this share as probable as the most probable one; 0: all."""
    typical_p: float = setting(1.0, above=0, most=1, advice="0.9; 1 keeps all tokens")
    """Typical sampling: from the tokens nearest the expected surprise that together have this probability; 1: all."""
    repetition_penalty: float = setting(1.0, above=0, advice="1.2; 1 turns it off")
    """Divides the logits of tokens already read or written (multiplies negative ones); above 1: fewer repeats."""
    frequency_penalty: float = setting(0.0, above=-math.inf, advice="0.5; 0 turns it off")
    """Subtracted from a token's logit for each time it has been written."""
    presence_penalty: float = setting(0.0, above=-math.inf, advice="0.5; 0 turns it off")
    """Subtracted once from the logit of a token already written."""
    no_repeat_ngram: int | None = setting(None, 1, MOST, advice="3, or leave it out to allow repetition")
    """No n-gram of this length comes twice, prompt included."""
    min_new_tokens: int = setting(0, 0, MOST)
    """Shortest answer, in tokens."""
    contrastive_alpha: float = setting(0.0, 0, 1, advice="0.6; 0 turns it off")
    """Contrastive search among top_k: weight of the penalty for tokens similar to the text so far; 0: off."""
    seed: int = setting(1, 0, 2**64 - 1)
    """Random seed of sampling; each answer has random numbers of its own, whatever batch it is in."""

    def __post_init__(self) -> None:
        check(self, self.section)
        refuse(self, SAMPLING, self.section)


GREEDY = Sampling(temperature=0.0)
"""Greedy decoding: the most likely token at each step."""


MOST_BEAM = 1024
MOST_PENALTY = 10


@dataclass(frozen=True)
class BeamSettings:
    """How answers are searched for; a frozen dataclass, checked when made. Errors: `ConfigError`."""

    section: ClassVar[str] = ""

    beam: int = setting(1, 1, MOST_BEAM, advice="4; 1 is greedy decoding")
    """Beam search: beam width, the hypotheses kept at each step; 1: off, greedy decoding or sampling."""
    length_penalty: float = setting(0.6, -MOST_PENALTY, MOST_PENALTY, advice="0.6; 0 ranks by log-probability alone")
    """Beam search: log-probability is divided by ((5 + tokens) / 6) to this power; above 0 favours longer answers."""
    coverage_penalty: float = setting(0.0, 0, MOST_PENALTY)
    """Beam search: weight of the penalty for source tokens that got little attention; 0: off."""
    beam_groups: int = setting(1, 1, MOST_BEAM)
    """Diverse beam search: equal groups of the beam, each discouraged from what earlier ones just chose; 1: off."""
    diversity: float = setting(0.5, 0, MOST_PENALTY)
    """Diverse beam search: penalty of a token, in nats, for each hypothesis of an earlier group that just chose it."""
    early_stop: bool = False
    """Beam search: stop as soon as `beam` answers are finished, even if an unfinished one could still be better."""

    def __post_init__(self) -> None:
        check(self, self.section)
        refuse(self, BEAM, self.section)


ONE_BEAM = BeamSettings()
"""No beam search: each token is the most likely one, or is drawn."""
