"""Finds out which computation the learner wrote: the known reading that gives the learner's numbers.

A reading is one choice for each aspect (the scale, the axis of the softmax, ...). Some choices are right, the others
are named mistakes. Inputs are random numbers in float64, so two different readings never give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from glassformer.base.shapes import Tensor
from glassformer.proof.check.table import Fault, Mistake, NotTestedError

TOLERANCE = 1e-7
"""Above float64 rounding from another order of operations, and above a fill such as 1e-9; far below any mistake."""
MOST_MISTAKES = 2
"""The most mistakes that are looked for at once."""


class Choice(NamedTuple):
    """One option for an aspect. `words` describe it in the evidence; without a mistake it is right."""

    value: Any
    words: str = ""
    mistake: Mistake | None = None


@dataclass(frozen=True)
class Reading:
    """One choice for each aspect, which together reproduce the output."""

    choices: dict[str, Choice]
    distance: float
    """Distance of the output from the nearest right reading."""
    residue: float
    """Distance of the output from this reading."""

    def value(self, aspect: str) -> Any:
        """Return the choice found for the aspect."""
        return self.choices[aspect].value

    def fault(self, aspect: str) -> Fault | None:
        """Return the mistake in one aspect, if there is one."""
        _, words, mistake = self.choices[aspect]
        if mistake is None:
            return None
        match = f"to {self.residue:.0e}" if self.residue else "to the last bit"
        off = (
            f"they are {self.distance:.2g} off"
            if self.distance < float("inf")
            else "there would be other numbers, or more or fewer of them"
        )
        told = f"With {words}, your numbers are reproduced {match}; as documented, {off}."
        return Fault(mistake, told)


def read(
    seen: Tensor,
    aspects: Mapping[str, Sequence[Choice]],
    compute: Callable[..., Tensor],
    tolerance: float = TOLERANCE,
) -> Reading | None:
    """Return the reading with the fewest mistakes that reproduces `seen`, or None if no known one does.

    `compute` takes the value of each aspect by name. Combinations that torch cannot compute (shapes) are skipped.
    """
    combinations = sorted(product(*aspects.values()), key=mistakes)
    nearest = float("inf")
    for choices in combinations:
        wrong = mistakes(choices)
        if wrong > MOST_MISTAKES:
            break
        try:
            gap = distance(seen, compute(**{name: each.value for name, each in zip(aspects, choices, strict=True)}))
        except (RuntimeError, IndexError):
            continue
        if wrong == 0:
            nearest = min(nearest, gap)
        if gap <= tolerance:
            return Reading(dict(zip(aspects, choices, strict=True)), nearest, gap)
    return None


def mistakes(choices: Sequence[Choice]) -> int:
    """Return how many choices are wrong."""
    return sum(each.mistake is not None for each in choices)


def distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference. Infinite for unequal shapes or a NaN."""
    if one.shape != other.shape:
        return float("inf")
    gap = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
    return gap if gap == gap else float("inf")


def aspect(name: str) -> Callable[[Any], Fault | None]:
    """Return a probe for one aspect of a learner's `reading`."""

    def probe(learner: Any) -> Fault | None:
        if learner.reading is None:
            raise NotTestedError("the computation was not recognised; see `equation`")
        return learner.reading.fault(name)

    return probe
