"""Properties of a learner's code, the mistakes that break them, and the loop that tests them."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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
    probe: Callable[[Any], Fault | None]
    needs: tuple[str, ...] = ()
    optional: bool = False
    """Whether code of the field usually does without it: then it is noted, and is no failure of the whole."""


@dataclass(frozen=True)
class Subject:
    """A kind of code: how to prepare the learner's function or class for probes, and its properties in order."""

    prepare: Callable[[Any], Any]
    properties: Sequence[Property]


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


def told(error: BaseException) -> str:
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
    return told(error.__cause__ or error)
