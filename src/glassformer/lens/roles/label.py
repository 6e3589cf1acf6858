"""Deciding which role a head has, from its scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from glassformer.lens.roles.roles import ROLES
from glassformer.lens.roles.thresholds import THRESHOLDS, Thresholds


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
