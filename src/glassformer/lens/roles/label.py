"""Deciding which role a head has, from its scores and the thresholds in one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from glassformer.lens.roles.roles import ROLES


@dataclass(frozen=True)
class Thresholds:
    """Thresholds, all in [0, 1]. Two are published; the others were chosen on planted and on trained heads."""

    strong: float = 0.6
    """Least corrected score S' of a role that a head clearly has."""
    strong_argmax: float = 0.9
    """Least share of queries whose largest weight is on the role's keys (Voita et al. 2019: a positional head)."""
    spread: float = 0.15
    """How far S' of one length, or of the control, may differ from the overall S'."""
    partial: float = 0.3
    """Least S' of a role that a head has in part."""
    sink: float = 0.5
    """Weight on special tokens above which a head without a role is called a sink."""
    diffuse: float = 0.8
    """Normalised entropy above which a head without a role is called diffuse."""
    needed: float = 0.01
    """Least drop of a needed head: the lower end of the drop's interval must reach it."""
    solved: float = 0.1
    """Least base metric at which a model has something to lose."""
    alike: float = 0.05
    """Largest divergence, in bits, at which two heads are called similar."""


THRESHOLDS = Thresholds()


class Figures(NamedTuple):
    """A role's score for one head."""

    mass: float
    argmax: float
    chance: float
    corrected: float
    n_queries: int
    by_length: Mapping[int, float] = {}
    """The corrected score for each source length."""
    control: float | None = None
    """The corrected score on the control sequences, in which tokens repeat."""

    @property
    def spread(self) -> float:
        """The largest difference of the score of any length, or of the control, from this one."""
        others = [*self.by_length.values(), *([] if self.control is None else [self.control])]
        return max((abs(each - self.corrected) for each in others), default=0.0)


@dataclass(frozen=True)
class Label:
    """What a head does, as far as its attention weights show it."""

    label: str
    """A role, or "sink", "diffuse", "mixed", "none"."""
    strength: str
    """strong, partial, sink, diffuse, mixed or none (no query could be scored)."""
    score: float
    """Corrected score of the role or, if the head has none, of the best-scoring role."""
    runner_up: tuple[str, float] | None
    """The next role of another family."""
    shift: int = 0
    """How many keys to the right of the role's own keys the head reads."""
    n_queries: int = 0

    @property
    def role(self) -> str:
        """The role's name in `ROLES`, for a head that has one: the label with its shift."""
        return f"{self.label} {self.shift:+d}" if self.shift else self.label

    @property
    def has_role(self) -> bool:
        """Whether a role was recognised."""
        return self.strength in ("strong", "partial")


def label(scores: Mapping[str, Figures], sink: float, entropy: float, rules: Thresholds = THRESHOLDS) -> Label:
    """Return the role with the highest corrected score if that is high enough (see docs/heads.md).

    `sink`: weight on special tokens; `entropy`: normalised. Roles that predict the same keys have equal scores; then
    the first in `ROLES` wins.
    """
    ranked = sorted(scores, key=lambda name: (-round(scores[name].corrected, 6), list(ROLES).index(name)))
    if not ranked or math.isnan(entropy):
        return Label("none", "none", 0.0, None)
    best = ranked[0]
    family = ROLES[best].family
    next_best = next((name for name in ranked if ROLES[name].family != family and not same(scores, name, best)), None)
    runner_up = None if next_best is None else (next_best, scores[next_best].corrected)
    found = scores[best]
    told = Label(family, "partial", found.corrected, runner_up, ROLES[best].shift, found.n_queries)
    if found.corrected >= rules.partial:
        if family == "sink":
            return Label("sink", "sink", found.corrected, runner_up, 0, found.n_queries)
        clear = found.argmax >= rules.strong_argmax and found.spread <= rules.spread
        strong = found.corrected >= rules.strong and clear
        return replace(told, strength="strong") if strong else told
    what = "sink" if sink > rules.sink else "diffuse" if entropy > rules.diffuse else "mixed"
    return Label(what, what, found.corrected, runner_up, 0, found.n_queries)


def same(scores: Mapping[str, Figures], one: str, other: str) -> bool:
    """Whether two roles predicted the same keys (their figures are equal), as lookup and reversal do in "reverse"."""
    mine, theirs = scores[one], scores[other]
    return (mine.mass, mine.argmax, mine.chance, mine.n_queries) == (
        theirs.mass, theirs.argmax, theirs.chance, theirs.n_queries,
    )  # fmt: skip
