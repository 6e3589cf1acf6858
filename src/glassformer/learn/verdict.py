"""What is true of one exercise, as a value; text, HTML and JSON are made of it. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from glassformer.learn.course import Exercise
from glassformer.learn.source import Source
from glassformer.proof.check.property import Outcome, Piece, Report

STATES = {
    "done": "done",
    "fails": "fails",
    "not written": "not written",
    "not own": "right, but not yours yet",
    "stopped": "could not run",
    "waits": "cannot be checked yet",
}
"""Every state of an exercise, and how it is said."""


@dataclass(frozen=True)
class Verdict:
    """An exercise, its state, why, and what the checker found of each part."""

    exercise: str
    state: str
    why: str = ""
    pieces: list[Piece] = field(default_factory=list[Piece])

    @classmethod
    def of(cls, exercise: Exercise, pieces: Sequence[Piece]) -> Verdict:
        """Return the verdict on parts that were checked for the exercise's properties alone."""
        found = [*pieces]
        broken = [each for each in found if each.problem]
        stubs = [each for each in found if not each.written]
        outcomes = [each for piece in found for each in piece.properties]
        open_ones = [each for each in outcomes if each.state == "not written" or blocked(each)]
        if stubs:
            return cls(exercise.id, "not written", f"{stubs[0].found_as} is still a stub", found)
        if broken:
            return cls(exercise.id, "stopped", str(broken[0].problem), found)
        if any(each.state == "fails" for each in outcomes):
            return cls(exercise.id, "fails", next(each.mistake for each in outcomes if each.state == "fails"), found)
        if open_ones:
            each = open_ones[0]
            return cls(exercise.id, "not written" if each.state == "not written" else "fails", each.why, found)
        if not any(each.state == "holds" for each in outcomes):
            why = outcomes[0].why if outcomes else "none of its properties is known to this version"
            return cls(exercise.id, "waits", why, found)
        return cls(exercise.id, "done", "", found)

    @classmethod
    def plain(cls, given: dict[str, Any]) -> Verdict:
        """Return the verdict of plain values, as `as_json` gives them."""
        pieces = Report.of({"file": "", "pieces": given["pieces"], "left_out": []}).pieces
        return cls(given["exercise"], given["state"], given["why"], pieces)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def done(self) -> bool:
        """Whether the exercise is done."""
        return self.state == "done"

    @property
    def outcomes(self) -> list[tuple[Piece, Outcome]]:
        """Every property that was looked at, with its part."""
        return [(piece, each) for piece in self.pieces for each in piece.properties]


def blocked(outcome: Outcome) -> bool:
    """Whether a property was not tested because another one fails, and not because the code has no such thing."""
    return outcome.state == "not tested" and outcome.why.startswith("fix ")


def absent(exercise: Exercise, name: str, names: Collection[str]) -> Verdict:
    """Return the verdict where a name is missing, with the nearest that is there: it may have been renamed."""
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    seen = f"; there is {near[0]}: was it renamed?" if near else ""
    return Verdict(exercise.id, "not written", f"{name} is not in the file{seen}")


def not_own(verdict: Verdict, exercise: Exercise, source: Source) -> Verdict:
    """Return the verdict, which stays open if a call into torch or glassformer does the work."""
    call = source.borrowed(exercise.names, exercise.not_with) if verdict.done else None
    return verdict if call is None else replace(verdict, state="not own", why=f"{call} does the work")
