"""A property of a learner's code, the mistakes that break it, and the running of a list of them."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Mistake:
    """One way to break a property. `hint` says where to look and not what to write."""

    name: str
    cause: str
    hint: str


class Fault(NamedTuple):
    """A mistake that was found, and the numbers that show it."""

    mistake: Mistake
    evidence: str


class NotTestedError(Exception):
    """A property that this code gives no handle on; the message says why. It is no failure."""


class SignatureError(Exception):
    """A function or class that cannot be called as documented; the message is the signature that was found."""


class CrashError(Exception):
    """The learner's code raised an error; it is the `__cause__`."""


@dataclass(frozen=True)
class Property:
    """A law, and a probe that gives the fault found or None. `needs`: it means nothing where one of these fails."""

    name: str
    law: str
    probe: Callable[[Any], Fault | None]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What is made of the learner's function or class to probe it, and the properties it must have, in order."""

    prepare: Callable[[Any], Any]
    properties: Sequence[Property]


@dataclass(frozen=True)
class Outcome:
    """What became of a property: `state` is "holds", "fails" or "not tested"."""

    property: str
    law: str
    state: str
    mistake: str = ""
    evidence: str = ""
    cause: str = ""
    hint: str = ""
    why: str = ""
    """Of a property that was not tested."""


def examine(subject: Subject, thing: object, only: Collection[str] = ()) -> list[Outcome]:
    """Every property of the learner's `thing`, in order; `only`: these (and what they need is probed too, unsaid).

    Errors: `SignatureError`, and `CrashError` where the code raises an error on plain input.
    """
    probe = subject.prepare(thing)
    done: dict[str, Outcome] = {}
    blocked: dict[str, str] = {}
    """Properties that failed, or need one that did: which one is to be mended."""
    for each in subject.properties:
        root = next((blocked[name] for name in each.needs if name in blocked), None)
        if root is not None:
            done[each.name] = Outcome(each.name, each.law, "not tested", why=f"mend `{root}` first")
        else:
            done[each.name] = probed(each, probe)
        if root is not None or done[each.name].state == "fails":
            blocked[each.name] = root or each.name
    return [outcome for outcome in done.values() if not only or outcome.property in only]


def probed(each: Property, probe: Any) -> Outcome:
    """One property, probed."""
    try:
        fault = each.probe(probe)
    except NotTestedError as reason:
        return Outcome(each.name, each.law, "not tested", why=str(reason))
    if fault is None:
        return Outcome(each.name, each.law, "holds")
    mistake, evidence = fault
    return Outcome(each.name, each.law, "fails", mistake.name, evidence, mistake.cause, mistake.hint)


def ask(function: Callable[..., Any], *inputs: Any) -> Any:
    """Call the learner's code. Errors: `CrashError` for whatever it raises, from the original."""
    try:
        return function(*inputs)
    except Exception as error:
        raise CrashError from error


OURS = str(Path(__file__).parents[1])
LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), OURS)


def told(error: BaseException) -> str:
    """An error with the learner's own line: type, message, file, line number and the line."""
    what = f"{type(error).__name__}: {first_line(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not outside(each.filename)]
    if not own:
        return what
    last = own[-1]
    return f"{what} ({Path(last.filename).name}, line {last.lineno}: {(last.line or '').strip()})"


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or ["(without a message)"])[0][:300]


def outside(filename: str) -> bool:
    """Whether a file is part of Python, of a library or of ours."""
    return filename.startswith(("<", *LIBRARY)) or "site-packages" in filename or "dist-packages" in filename


def crash_of(error: CrashError) -> str:
    """What the learner's code raised, with its line."""
    return told(error.__cause__ or error)
