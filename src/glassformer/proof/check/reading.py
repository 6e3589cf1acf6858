"""Finding out which computation was written: the reading, of all known ones, that gives the learner's numbers.

A reading is one choice for each aspect (the scale, the axis of the softmax, ...); some choices are right, the others
are named mistakes. Inputs are random numbers in float64, so two readings that differ never give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from glassformer.foundation.shapes import Tensor
from glassformer.proof.check.table import Fault, Mistake, NotTestedError

TOLERANCE = 1e-7
"""Above the rounding of another order of float64 operations, and of a fill such as 1e-9; far below any mistake."""
MOST_MISTAKES = 2
"""Mistakes at once that are looked for."""


class Choice(NamedTuple):
    """What an aspect may be. `words` describe it for the evidence; without a mistake it is right."""

    value: Any
    words: str = ""
    mistake: Mistake | None = None


@dataclass(frozen=True)
class Reading:
    """One choice for each aspect, which together give what was seen."""

    choices: dict[str, Choice]
    distance: float
    """Of what was seen from the nearest right reading."""
    residue: float
    """Of what was seen from this reading."""

    def value(self, aspect: str) -> Any:
        """What the aspect was found to be."""
        return self.choices[aspect].value

    def fault(self, aspect: str) -> Fault | None:
        """The mistake in one aspect, if it is one."""
        _, words, mistake = self.choices[aspect]
        if mistake is None:
            return None
        match = f"to {self.residue:.0e}" if self.residue else "to the last bit"
        off = (
            f"they are {self.distance:.2g} off"
            if self.distance < float("inf")
            else "there would be other ones, or another number of them"
        )
        told = f"With {words} your numbers come out {match}; as documented {off}."
        return Fault(mistake, told)


def read(
    seen: Tensor,
    aspects: Mapping[str, Sequence[Choice]],
    compute: Callable[..., Tensor],
    tolerance: float = TOLERANCE,
) -> Reading | None:
    """The reading with the fewest mistakes that gives `seen`; None: it is no known one.

    `compute` takes the value of each aspect by name; one that torch cannot compute (shapes) is passed over.
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
    """How many choices are wrong."""
    return sum(each.mistake is not None for each in choices)


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference; infinite for other shapes or where one is not a number."""
    if one.shape != other.shape:
        return float("inf")
    gap = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
    return gap if gap == gap else float("inf")


def aspect(name: str) -> Callable[[Any], Fault | None]:
    """The probe of one aspect of a learner's `reading`."""

    def probe(learner: Any) -> Fault | None:
        if learner.reading is None:
            raise NotTestedError("what is computed could not be told apart; see `equation`")
        return learner.reading.fault(name)

    return probe
