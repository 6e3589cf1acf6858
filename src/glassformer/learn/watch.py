"""Looks at the learner's file again and again, and says after each save what is wrong first.

Polling, because watchers of the operating system see nothing on network drives and in some containers. Prints nothing:
`look` and `press` return screens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from glassformer.base.errors import GlassformerError
from glassformer.learn.checking import Checker
from glassformer.learn.course import Exercise
from glassformer.learn.report import STATES, Checked, following, headed, minutes_told, verdict_lines
from glassformer.learn.workspace import Workspace
from glassformer.proof.check.property import wrapped

EACH, SETTLED, ACTIVE = 0.3, 0.1, 300.0
"""Seconds between looks, until a save has settled, and for which a save counts as work."""
KEYS = {
    "h": "hint", "n": "next", "b": "back", "k": "skip", "a": "all", "e": "explain", "o": "open", "s": "solution",
    "l": "list", "q": "quit",
}  # fmt: skip


@dataclass
class Watch:
    """A watch on one file: the exercise at hand, what held before, and what was seen last."""

    place: Workspace
    checker: Checker
    width: int
    at: Exercise
    keys: bool = True
    """Whether keys can be pressed."""
    every: bool = False
    """Whether all failures are shown, or only the first."""
    held: set[str] = field(default_factory=set[str])
    """The exercises that were seen done."""
    found: Checked | None = None
    stamp: tuple[int, int] = (0, 0)
    active: float = 0.0
    """Seconds of work that are not written down yet."""
    looked: float = field(default_factory=time.monotonic)
    unwritten: str = ""
    """Why attempts and minutes could not be written down last; the watch goes on without."""

    def begin(self) -> str:
        """Check all exercises once, go to the first open one unless one was asked for, and return the screen."""
        self.stamp = self.seen()
        found = self.checker.check(self.place.course.exercises)
        self.held = {number for number, each in found.verdicts.items() if each.done}
        self.found = found
        return self.screen()

    def seen(self) -> tuple[int, int]:
        """Return time and size of the file, and of what it may import; (0, 0) while it is not there."""
        try:
            states = [each.stat() for each in self.place.files if each == self.place.path or each.exists()]
        except OSError:
            return 0, 0
        return max(each.st_mtime_ns for each in states), sum(each.st_size for each in states)

    def look(self, sleep: Callable[[float], None] = time.sleep) -> str | None:
        """Return a new screen if the file was saved since the last look, once the save has settled; else None."""
        now, stamp = time.monotonic(), self.seen()
        if time.time() - stamp[0] / 1e9 < ACTIVE:
            self.active += min(now - self.looked, 5.0)
        self.looked = now
        if stamp in (self.stamp, (0, 0)):
            return None
        while True:  # an editor may still be writing
            sleep(SETTLED)
            if (again := self.seen()) == stamp:
                break
            stamp = again
        self.stamp = stamp
        return self.saved()

    def saved(self) -> str:
        """Check the exercise at hand and all that held before, write the attempt down, and return the screen."""
        course = self.place.course
        requested = [each for each in course.exercises if each.id in self.held or each.id == self.at.id]
        self.found = self.checker.check(requested)
        trails, _ = self.place.trails()
        trail = trails.get(self.at.id)
        verdict = self.found.verdicts.get(self.at.id)
        changes: dict[str, object] = {"attempts": (trail.attempts if trail else 0) + 1}
        if verdict is not None and verdict.done:
            self.held.add(self.at.id)
            if trail is None or not trail.done:
                changes["done"] = datetime.now().isoformat(timespec="minutes")
        self.note(**changes)
        self.settle()
        return self.screen()

    def settle(self) -> None:
        """Write the minutes of work down."""
        trails, _ = self.place.trails()
        before = trails[self.at.id].minutes if self.at.id in trails else 0.0
        if self.active >= 1:
            self.note(minutes=round(before + self.active / 60, 2))
            self.active = 0.0

    def note(self, **changes: object) -> None:
        """Write down what is remembered of the exercise at hand."""
        try:
            self.place.note(self.at.id, **changes)
            self.unwritten = ""
        except GlassformerError as error:
            self.unwritten = str(error)

    def screen(self) -> str:
        """Return what is known now, as text."""
        found, trails = self.found, self.place.trails()[0]
        trail = trails.get(self.at.id)
        tail = f"{datetime.now():%H:%M:%S}"
        if trail is not None and trail.attempts:
            tail = f"attempt {trail.attempts} · {minutes_told(trail.minutes)} · {tail}"
        if found is None or found.problem:
            problem = found.problem if found else "nothing was checked yet"
            lines = [*headed(self.at, tail, self.width), *wrapped(f"could not run: {problem}", "  ", self.width)]
            return "\n".join([*lines, *self.bar(0, done=False)])
        notes = filter(None, (*found.remarks, self.unwritten))
        lines = [line for each in notes for line in wrapped(f"NOTE   {each}", "  ", self.width)]
        for number in sorted(self.held - {self.at.id}):
            verdict = found.verdicts.get(number)
            if verdict is not None and not verdict.done:
                lines += wrapped(
                    f"FAILS  {number} held before: {verdict.why or STATES[verdict.state]}", "  ", self.width
                )
        lost = any(line.startswith("  FAILS") for line in lines)
        verdict = found.verdicts.get(self.at.id)
        if verdict is not None:
            lines += verdict_lines(self.at, verdict, self.width, self.every, tail)
            lines += self.unopened() if verdict.state in ("not written", "waits") else []
        still = sorted(n for n in self.held - {self.at.id} if n in found.verdicts and found.verdicts[n].done)
        if still:
            lines.append(f"  still holds  {', '.join(still) if len(still) < 4 or lost else f'all {len(still)} before'}")
        return "\n".join([*lines, *self.bar(trail.hints if trail else 0, verdict is not None and verdict.done)])

    def unopened(self) -> list[str]:
        """Return lines that say how to begin the chapter at hand, as long as its notebook is not there."""
        number = self.at.chapter
        if not self.place.unopened(number):
            return []
        text = f"Chapter {number} is not begun: glassformer learn {number} writes its notebook and its stubs."
        return wrapped(text, "  ", self.width)

    def bar(self, hints: int, done: bool) -> list[str]:
        """Return the line of keys; none where no keys can be read."""
        if not self.keys:
            return []
        text = f"h hint ({min(hints + 1, 3)} of 3)   e explain   a all   k skip   b back   l list   q quit"
        if done:
            ahead = self.neighbour(1)
            to = f": {ahead.label} ({ahead.minutes} min)" if ahead else ""
            text = f"n next{to}   s ours   b back   l list   q quit"
        return wrapped(text, " ", self.width)

    def neighbour(self, step: int) -> Exercise | None:
        """Return the next open exercise, or the one before; None at the end."""
        every = self.place.course.exercises
        at = every.index(self.at) + step
        while 0 <= at < len(every):
            if step < 0 or every[at].id not in self.held:
                return every[at]
            at += step
        return None

    def press(self, key: str) -> str | None:
        """Do what a key says and return the text to show; None for a key that means nothing here."""
        name = KEYS.get(key[:1].lower(), "")
        if name in ("next", "skip", "back"):
            self.settle()
            if name == "skip":
                self.note(skipped=True)
            other = self.neighbour(-1 if name == "back" else 1)
            if other is None:
                return "There is no other exercise in this direction."
            self.at, self.every = other, False
            self.found = self.checker.check(
                [each for each in self.place.course.exercises if each.id in self.held or each is other]
            )
            return self.screen()
        if name == "all":
            self.every = not self.every
            return self.screen()
        return None


def watching(
    place: Workspace, checker: Checker, width: int, requested: Exercise | None, keys: bool = True
) -> tuple[Watch, str]:
    """Return a watch and its first screen: at the exercise that was asked for, or at the first that is open."""
    watch = Watch(place, checker, width, requested or place.course.exercises[0], keys)
    screen = watch.begin()
    if requested is None and watch.found is not None:
        watch.at = following(place.course, watch.found, place.trails()[0]) or watch.at
        screen = watch.screen()
    return watch, screen
