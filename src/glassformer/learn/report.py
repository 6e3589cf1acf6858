"""What is true of exercises, as values, and as people read it: text for the terminal, HTML for notebooks.

Imports no torch.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from glassformer.learn.course import Course, Exercise
from glassformer.learn.source import Source
from glassformer.learn.workspace import Trail, Workspace
from glassformer.proof.check.property import Outcome, Piece, Report, wrapped

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
        lacking = [
            f"{piece.found_as}: {each.why}"
            for piece in found
            for each in piece.properties
            if each.property in exercise.must and each.state == "not tested"
        ]
        if lacking:
            return cls(exercise.id, "not written", lacking[0], found)
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


@dataclass
class Checked:
    """What was found of a learner's file: why it cannot be run, or a verdict for each exercise; and remarks."""

    path: Path
    problem: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    remarks: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """Return 2 if the file cannot be run, 3 if an exercise is not done, else 0."""
        return 2 if self.problem else 0 if all(each.done for each in self.verdicts.values()) else 3


def blocked(outcome: Outcome) -> bool:
    """Whether a property was not tested because another one fails, and not because the code has no such thing."""
    return outcome.state == "not tested" and outcome.why.startswith("fix ")


def absent(exercise: Exercise, name: str, names: Collection[str]) -> Verdict:
    """Return the verdict where a name is missing, with the nearest that is there: it may have been renamed."""
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    advice = (
        f"there is {near[0]}: was it renamed?" if near else f"glassformer learn {exercise.chapter} appends its stub"
    )
    return Verdict(exercise.id, "not written", f"{name} is not in the file; {advice}")


def not_own(verdict: Verdict, exercise: Exercise, source: Source) -> Verdict:
    """Return the verdict, which stays open if a call into torch or glassformer does the work."""
    call = source.borrowed(exercise.names, exercise.not_with) if verdict.done else None
    return (
        verdict if call is None else replace(verdict, state="not own", why=f"{call} does the work; write it yourself")
    )


@dataclass(frozen=True)
class Shown:
    """A text, and the same as HTML, as a notebook shows it."""

    text: str
    markup: str = ""

    def __repr__(self) -> str:
        """Return the text."""
        return self.text

    def _repr_html_(self) -> str:
        told = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(self.text))
        return self.markup or f'<div role="status"><p>{told}</p></div>'


class Status(Shown):
    """Versions, device and progress; `text` says them in a line each."""

    def __init__(self, place: Workspace, found: Sequence[Checked], versions: str) -> None:
        none = f"no {place.path.name} here yet, so this page runs with our parts; `glassformer learn 1` begins"
        lines = [share_done(each) for each in found] if place.begun else [none]
        super().__init__("\n".join([versions, *lines]))


def share_done(found: Checked) -> str:
    """Say how many exercises of a file are done, or why it cannot be run."""
    done = sum(each.done for each in found.verdicts.values())
    return found.problem or f"{found.path.name}: {done} of {len(found.verdicts)} exercises done"


def marked(exercise: Exercise, verdict: Verdict, every: bool = True) -> list[tuple[str, str, str]]:
    """Return rows (state, property, text) of a verdict: first the failures; only the first unless `every`."""
    several = len(verdict.pieces) > 1
    rows: list[tuple[str, str, str]] = []
    outcomes = [(f"{piece.found_as}: " if several else "", each) for piece, each in verdict.outcomes]
    fails = [(who, each) for who, each in outcomes if each.state == "fails"]
    rows += [("FAILS", who + each.property, failure(each)) for who, each in (fails if every else fails[:1])]
    waits = [who + each.property for who, each in outcomes if each.state == "not tested" and each.why[:4] == "fix "]
    waits += [] if every else [who + each.property for who, each in fails[1:]]
    if waits:
        rows.append(("waits", "", ", ".join(waits)))
    if held := [who + each.property for who, each in outcomes if each.state == "holds"]:
        rows.append(("holds", "", ", ".join(held)))
    return rows


def failure(each: Outcome) -> str:
    """Return the name of a mistake, the numbers that show it, its likely cause and the question to ask oneself."""
    where = f" (line {each.line})" if each.line else ""
    return "\n".join(filter(None, (f"{each.mistake}{where}", sentence(each.evidence), sentence(each.cause), each.hint)))


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def headed(exercise: Exercise, tail: str, width: int) -> list[str]:
    """Return the head of an exercise's screen, with `tail` at its right end."""
    head = f"{exercise.label:{max(width - len(tail), len(exercise.label) + 1)}}{tail}".rstrip()
    return [head] if len(head) <= width else wrapped(f"{exercise.label} {tail}", "", width)


def verdict_lines(exercise: Exercise, verdict: Verdict, width: int, every: bool = False, tail: str = "") -> list[str]:
    """Return the screen of one exercise."""
    state = [] if verdict.state == "fails" else [f"  {STATES[verdict.state]}" + f": {verdict.why}" * bool(verdict.why)]
    lines = headed(exercise, tail, width)
    lines += [each for text in state for each in wrapped(text.strip(), "  ", width)]
    if verdict.state in ("not written", "waits"):
        lines += wrapped(exercise.statement, "  ", width)
    if verdict.state == "fails" and not any(row[0] == "FAILS" for row in marked(exercise, verdict)):
        lines += wrapped(f"FAILS: {verdict.why}", "  ", width)
    for kind, name, text in marked(exercise, verdict, every):
        first, *rest = text.splitlines()
        lines += wrapped(f"{kind:6} {f'{name}: ' if name else ''}{first}", "  ", width)
        lines += [each for text in rest for each in wrapped(text, "         ", width)]
    if verdict.done and exercise.know:
        lines += wrapped(f"You now know: {exercise.know}.", "  ", width)
    return lines


def verdict_shown(exercise: Exercise, verdict: Verdict) -> Shown:
    """Return a verdict as a notebook shows it: a table without script, in words first, colours of the page."""
    text = "\n".join(verdict_lines(exercise, verdict, 100, every=True))
    rows = "".join(
        f'<tr><th scope="row">{kind}</th><td>{html.escape(name)}</td><td style="text-align: left; white-space: '
        f'pre-line">{html.escape(shown)}</td></tr>'
        for kind, name, shown in marked(exercise, verdict)
    )
    why = f": {verdict.why}" if verdict.why else ""
    caption = f"{exercise.label}: {STATES[verdict.state]}{why if verdict.state != 'fails' else ''}"
    head = '<tr><th scope="col">state</th><th scope="col">property</th><th scope="col">found</th></tr>'
    know = f"<p>You now know: {html.escape(exercise.know)}.</p>" if verdict.done and exercise.know else ""
    table = f"<table><caption>{html.escape(caption)}</caption><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return Shown(text, f'<div role="status">{table}{know}</div>')


def minutes_told(minutes: float) -> str:
    """Return minutes as people say them."""
    whole = round(minutes)
    return (
        " ".join(f"{each} {unit}" for each, unit in zip(divmod(whole, 60), ("h", "min"), strict=True) if each)
        or "0 min"
    )


def listing(
    place: Workspace, found: Checked, trails: Mapping[str, Trail], following: Exercise | None, width: int, plain: bool
) -> list[str]:
    """Return the screen of `glassformer learn`: chapters, what is done in each, what is next."""
    course = place.course
    done = {number for number, each in found.verdicts.items() if each.done}
    lines = wrapped(f"{course.title}: {len(done)} of {len(course.exercises)} done, in {place.folder}/", "", width)
    wide = max(len(each.number) for each in course.chapters)
    for chapter in course.chapters:
        within = course.within(chapter.number)
        count = sum(each.id in done for each in within)
        note = ""
        if count == len(within):
            spent = sum(trails[each.id].minutes for each in within if each.id in trails)
            note = "done" + (f" in {minutes_told(spent)}" if spent >= 1 else "")
        elif following is not None and following.chapter == chapter.number:
            note = f"next: {following.label}"
        elif not count and place.unopened(chapter.number):
            note = f"glassformer learn {chapter.number} opens it"
        bar = "" if plain or width < 70 else f"{'█' * round(8 * count / len(within)):8} "
        line = f"{chapter.number:{wide}} {chapter.title:28} {bar}{count} of {len(within)}  {note}"
        lines += wrapped(line.rstrip(), " ", width)
    return lines


def following(course: Course, found: Checked, trails: Mapping[str, Trail]) -> Exercise | None:
    """Return the first exercise that is open and was not skipped; None if there is none."""
    skipped = {number for number, each in trails.items() if each.skipped}
    for each in course.exercises:
        verdict = found.verdicts.get(each.id)
        if each.id not in skipped and not (verdict is not None and verdict.done):
            return each
    return None


def as_json(found: Checked) -> dict[str, object]:
    """Return what was found as plain values, for programs."""
    return {
        "file": str(found.path),
        "problem": found.problem,
        "remarks": found.remarks,
        "exercises": [each.as_json() for each in found.verdicts.values()],
        "exit_code": found.exit_code,
    }


def counted(verdicts: Sequence[Verdict]) -> str:
    """Say how many verdicts there are of each state."""
    numbers = {state_name: sum(each.state == state for each in verdicts) for state, state_name in STATES.items()}
    return ", ".join(f"{number} {state_name}" for state_name, number in numbers.items() if number)
