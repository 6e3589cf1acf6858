"""What a check found, as one value from which text, JSON and pages are made. Imports no torch."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glassformer.proof.check.table import Outcome


@dataclass(frozen=True)
class Piece:
    """One function or class of the learner's: the subject `name`, its own name, and the outcome of each property."""

    name: str
    found_as: str
    line: int | None
    problem: str | None = None
    """What prevented all tests."""
    written: bool = True
    """False for a stub."""
    properties: list[Outcome] = field(default_factory=list[Outcome])

    @property
    def faults(self) -> list[Outcome]:
        """The properties that fail, optional ones included."""
        return [each for each in self.properties if each.state == "fails"]

    @property
    def holds(self) -> bool:
        """Whether it is written, could be tested, and no property fails."""
        return (
            self.written
            and self.problem is None
            and not any(
                each.state == "not written" or (each.state == "fails" and not each.optional) for each in self.properties
            )
        )


@dataclass(frozen=True)
class LeftOut:
    """A function or class that was not looked at, and why."""

    name: str
    why: str
    line: int | None = None


@dataclass(frozen=True)
class Report:
    """The pieces of a file that were checked, and what was left out."""

    file: str
    pieces: list[Piece]
    left_out: list[LeftOut]

    def as_json(self) -> dict[str, Any]:
        """Return plain values; `of` makes a report of them again."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Report:
        """Return the report of plain values."""

        def piece(properties: list[dict[str, Any]], **rest: Any) -> Piece:
            return Piece(**rest, properties=[Outcome(**each) for each in properties])

        pieces = [piece(**each) for each in plain["pieces"]]
        return cls(plain["file"], pieces, [LeftOut(**each) for each in plain["left_out"]])

    @property
    def unrecognised(self) -> list[str]:
        """The pieces that hold in what was tested, though what they compute could not be told."""
        return [
            piece.found_as
            for piece in self.pieces
            if piece.holds and ("equation", "not tested") in {(each.property, each.state) for each in piece.properties}
        ]

    def exit_code(self, strict: bool = False) -> int:
        """Return 0 if all properties hold, 2 if a piece could not be run, 3 if a property fails or a stub is left.

        With `strict`, code that was not looked at gives 3, too, and so does a piece that was not recognised.
        """
        if any(each.problem for each in self.pieces):
            return 2
        unseen = strict and (self.left_out or self.unrecognised)
        return 3 if unseen or not all(each.holds for each in self.pieces) else 0


def as_text(report: Report, width: int) -> str:
    """Return a paragraph for each piece of the file, what was not looked at, and a summary as the last line."""
    lines: list[str] = []
    for piece in report.pieces:
        lines += [*piece_lines(piece, Path(report.file).name, width), ""]
    lines += [line for each in report.left_out for line in left_out_lines(each, width)]
    return "\n".join([*lines, summary(report)])


def piece_lines(piece: Piece, file: str, width: int) -> list[str]:
    """Return the lines for one piece of a file."""
    lines = [piece.name + (f" ({piece.found_as})" if piece.found_as != piece.name else "")]
    if not piece.written:
        lines.append(f"  NOT WRITTEN {file}, line {piece.line}: its body is still a stub.")
    if piece.problem:
        lines += wrapped(piece.problem, "  ", width)
    return lines + [line for each in piece.properties for line in property_lines(each, file, width)]


def property_lines(each: Outcome, file: str, width: int) -> list[str]:
    """Return one line for a property, and below a failure its place, evidence, cause and hint."""
    if each.state == "holds":
        return [f"  holds       {each.property}: {each.law}"]
    if each.state != "fails":
        return wrapped(f"  {each.state:11} {each.property}: {each.why}.", "", width)
    where = [("where", f"{file}, line {each.line}")] if each.line else []
    said = [*where, ("evidence", each.evidence), ("likely cause", each.cause), ("hint", each.hint)]
    return [
        f"  {'note ' if each.optional else 'FAILS'}       {each.property}: {each.mistake}"
        + (" (optional)" if each.optional else ""),
        *(x for what, text in said for x in wrapped(f"{what}: {text}", " " * 14, width)),
    ]


def left_out_lines(each: LeftOut, width: int) -> list[str]:
    """Return the lines for what was not looked at."""
    return wrapped(f"{each.name}{f' (line {each.line})' if each.line else ''} is not looked at: {each.why}.", "", width)


def wrapped(text: str, margin: str, width: int) -> list[str]:
    """Wrap text to a width."""
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin + "  ")


def summary(report: Report) -> str:
    """Return how many properties hold, the names of the mistakes, and how much was not looked at."""
    tested = [each for piece in report.pieces for each in piece.properties if each.state in ("holds", "fails")]
    parts = [f"{sum(each.state == 'holds' for each in tested)} of {len(tested)} properties hold"]
    if broken := [piece.found_as for piece in report.pieces if piece.problem]:
        parts.append(f"could not be checked: {', '.join(broken)}")
    if stubs := [piece.found_as for piece in report.pieces if not piece.written]:
        parts.append(f"not written: {', '.join(stubs)}")
    parts += dict.fromkeys(each.mistake for each in tested if each.state == "fails" and not each.optional)
    if noted := dict.fromkeys(each.mistake for each in tested if each.state == "fails" and each.optional):
        parts.append(f"noted: {', '.join(noted)}")
    if report.unrecognised:
        parts.append(f"what it computes was not recognised, and so not tested: {', '.join(report.unrecognised)}")
    if report.left_out:
        parts.append(f"{len(report.left_out)} not looked at: {', '.join(each.name for each in report.left_out)}")
    return f"{report.file}: {'; '.join(parts)}."
