"""Which role a head has, from its scores."""

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
    """Corrected, of each length of the source."""
    control: float | None = None
    """Corrected, on the sequences in which tokens come again."""

    @property
    def spread(self) -> float:
        """How far the score of a length, or of the control, lies from this one, at most."""
        others = [*self.by_length.values(), *([] if self.control is None else [self.control])]
        return max((abs(each - self.corrected) for each in others), default=0.0)


@dataclass(frozen=True)
class Label:
    """What a head does, as far as its weights show it."""

    label: str
    """A role, or "sink", "diffuse", "mixed", "none"."""
    strength: str
    """strong, partial, sink, diffuse, mixed or none (no query could be scored)."""
    score: float
    """Corrected score of the role; where there is none, of the nearest."""
    runner_up: tuple[str, float] | None
    """The next role of another family."""
    shift: int = 0
    """Keys to the right of the role's own."""
    n_queries: int = 0

    @property
    def role(self) -> str:
        """The name in `ROLES` of a head that has a role: the label with its shift."""
        return f"{self.label} {self.shift:+d}" if self.shift else self.label

    @property
    def has_role(self) -> bool:
        """Whether a role was recognised."""
        return self.strength in ("strong", "partial")


def label(scores: Mapping[str, Figures], sink: float, entropy: float, rules: Thresholds = THRESHOLDS) -> Label:
    """The role with the highest corrected score, if that is high enough (explained in docs/heads.md).

    `sink`: weight on special tokens; `entropy`: as a share of the largest. Roles that predict the same keys have equal
    scores; the first in `ROLES` is taken.
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
    """Whether two roles predicted the same keys, as looking a token up and reading in reverse do in that task."""
    mine, theirs = scores[one], scores[other]
    return (mine.mass, mine.argmax, mine.chance, mine.n_queries) == (
        theirs.mass, theirs.argmax, theirs.chance, theirs.n_queries,
    )  # fmt: skip
