"""Properties of a learner's code, the mistakes that break them, and what a check found. Imports no torch."""

from __future__ import annotations

import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Mistake:
    """One way to break a property. `hint` says where to look, not what to write."""

    name: str
    cause: str
    hint: str


class Fault(NamedTuple):
    """A mistake that was found, and the numbers that show it."""

    mistake: Mistake
    evidence: str


Probe = Callable[[Any], Fault | None]
"""Returns what is wrong with a learner's code as it was prepared; None if nothing is."""


class NotTestedError(Exception):
    """A property that cannot be tested on this code. The message says why. This is not a failure."""


class SignatureError(Exception):
    """A function or class that cannot be called as documented. The message is its actual signature."""


class CrashError(Exception):
    """The learner's code raised an error, which is the `__cause__`."""


class NotWrittenError(Exception):
    """The learner's code is still a stub: it raises `NotImplementedError`."""


@dataclass(frozen=True)
class Property:
    """A law, and a probe that returns a fault or None.

    If one of `needs` fails, the probe is meaningless and is skipped.
    """

    name: str
    law: str
    probe: Probe
    needs: tuple[str, ...] = ()
    optional: bool = False
    """Whether code of the field usually does without it: then it is noted, and is no failure of the whole."""


def law(text: str, *needs: str, name: str = "", optional: bool = False) -> Callable[[Probe], Property]:
    """Make a property of a method that is its probe. It has the method's name, with hyphens, unless `name` is given."""
    return lambda probe: Property(name or probe.__name__.replace("_", "-"), text, probe, needs, optional)


@dataclass(frozen=True)
class Subject:
    """A kind of code: how to prepare the learner's function or class for probes, and its properties in order."""

    prepare: Callable[[Any], Any]
    properties: Sequence[Property]

    @classmethod
    def of(cls, kind: type) -> Subject:
        """Return the subject that `kind` prepares.

        Its properties are the laws of `kind` and of its bases: all in the order of their definition, or those that a
        text `laws` names, in that order. What a class leaves out must be named by a base, so that no law is forgotten.
        """
        attributes = (each for base in reversed(kind.__mro__) for each in vars(base).values())
        laws = {each.name: each for each in attributes if isinstance(each, Property)}
        texts = [vars(base)["laws"].split() for base in kind.__mro__ if "laws" in vars(base)]
        names = texts[0] if texts else [*laws]
        forgotten = {*laws} - {name for each in (*texts, names) for name in each}
        assert laws, f"{kind.__name__} has no law"
        assert not forgotten, f"{kind.__name__}.laws leaves out {forgotten}"
        return cls(kind, [laws[name] for name in names])


@dataclass
class Outcome:
    """The result for a property: `state` is "holds", "fails", "not written" or "not tested"."""

    property: str
    law: str
    state: str
    mistake: str = ""
    evidence: str = ""
    cause: str = ""
    hint: str = ""
    why: str = ""
    """Why the property was not tested."""
    optional: bool = False
    line: int | None = None
    """The line of the learner's file that a failure is about."""


def examine(subject: Subject, thing: object, only: Collection[str] = ()) -> list[Outcome]:
    """Test every property of the learner's `thing`, in order. With `only`, return only those, though others run too.

    Errors: `SignatureError`, `NotWrittenError`, and `CrashError` if the code raises an error on plain input.
    """
    probe = subject.prepare(thing)
    done: dict[str, Outcome] = {}
    blocked: dict[str, str] = {}
    """Maps a property that failed, or that needs a failed one, to the property to mend first."""
    for each in subject.properties:
        root = next((blocked[name] for name in each.needs if name in blocked), None)
        if root is not None:
            done[each.name] = Outcome(each.name, each.law, "not tested", why=f"fix `{root}` first")
        else:
            done[each.name] = probed(each, probe)
        if root is not None or done[each.name].state in ("fails", "not written"):
            blocked[each.name] = root or each.name
    return [outcome for outcome in done.values() if not only or outcome.property in only]


def probed(each: Property, probe: Any) -> Outcome:
    """Test one property."""
    try:
        fault = each.probe(probe)
    except NotTestedError as reason:
        return Outcome(each.name, each.law, "not tested", why=str(reason))
    except NotWrittenError:
        return Outcome(each.name, each.law, "not written", why="the code for it is a stub")
    if fault is None:
        return Outcome(each.name, each.law, "holds")
    mistake, evidence = fault
    return Outcome(
        each.name, each.law, "fails", mistake.name, evidence, mistake.cause, mistake.hint, optional=each.optional
    )


def ask(function: Callable[..., Any], *inputs: Any) -> Any:
    """Call the learner's code. Errors: `NotWrittenError` for a stub; `CrashError`, from whatever else it raises."""
    try:
        return function(*inputs)
    except NotImplementedError as stub:
        raise NotWrittenError from stub
    except Exception as error:
        raise CrashError from error


OURS = str(Path(__file__).parents[1])
LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), OURS)


def error_text(error: BaseException) -> str:
    """Return an error as text, with the learner's own line: type, message, file, line number and line."""
    what = f"{type(error).__name__}: {first_line(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not outside(each.filename)]
    if not own:
        return what
    last = own[-1]
    return f"{what} ({Path(last.filename).name}, line {last.lineno}: {(last.line or '').strip()})"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or ["(without a message)"])[0][:300]


def outside(filename: str) -> bool:
    """Whether a file is part of Python, of another library or of ours."""
    return filename.startswith(("<", *LIBRARY)) or "site-packages" in filename or "dist-packages" in filename


def crash_of(error: CrashError) -> str:
    """Return what the learner's code raised, with its line."""
    return error_text(error.__cause__ or error)


# --- what a check found, as one value from which text, JSON and pages are made


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
    file: str = ""
    """The name of the file that its lines are in, if known: the one checked, or one that it imports from."""

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
        lines += [*piece_lines(piece, piece.file or Path(report.file).name, width), ""]
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
    lines = [*where, ("evidence", each.evidence), ("likely cause", each.cause), ("hint", each.hint)]
    return [
        f"  {'note ' if each.optional else 'FAILS'}       {each.property}: {each.mistake}"
        + (" (optional)" if each.optional else ""),
        *(x for what, text in lines for x in wrapped(f"{what}: {text}", " " * 14, width)),
    ]


def left_out_lines(each: LeftOut, width: int) -> list[str]:
    """Return the lines for what was not looked at."""
    return wrapped(f"{each.name}{f' (line {each.line})' if each.line else ''} is not looked at: {each.why}.", "", width)


def wrapped(text: str, margin: str, width: int) -> list[str]:
    """Wrap text to a width; flags and paths are not broken at their hyphens."""
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin + "  ", break_on_hyphens=False)


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
