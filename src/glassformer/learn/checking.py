"""Checks exercises of a learner's file in another process, which can neither hang nor end this one.

What the text alone decides (a missing name, a stub) is decided here, and only the rest is run.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassformer.base.errors import DataError
from glassformer.learn.course import Course, Exercise
from glassformer.learn.experiments import judged
from glassformer.learn.report import Checked, Verdict, absent
from glassformer.learn.source import Source, read_source
from glassformer.proof.check.file import hanging, run_child

LIMIT = 60.0
"""Seconds for all of a learner's code. Starting Python and torch does not count."""

Run = Callable[[list[str], float], int | None]
"""Does the work of judge.py for these words; the exit code, or None if it had to be killed."""


class Checker:
    """Checks the file of one learner again and again; a verdict is kept until the code behind it changes."""

    def __init__(self, course: Course, path: Path, limit: float = LIMIT, run: Run | None = None) -> None:
        self.course, self.path, self.limit = course, path, limit
        self.run = run or in_new_process
        self.kept: dict[str, tuple[str, Verdict]] = {}

    def check(self, exercises: Sequence[Exercise]) -> Checked:
        """Check these exercises of the file as it is now."""
        begun = time.monotonic()
        found = Checked(self.path)
        try:
            source = read_source(self.path)
            found.remarks += remarks(source)
            ready = {each.id: self.without_running(each, source) for each in exercises}
            waiting = [number for number, verdict in ready.items() if verdict is None]
            ran, problem = self.ran(waiting, source) if waiting else ({}, "")
        except DataError as error:
            found.problem = str(error)
            return found
        for number, verdict in ready.items():
            if (each := verdict or ran.get(number)) is not None:
                found.verdicts[number] = each
        found.problem = problem
        found.seconds = time.monotonic() - begun
        return found

    def without_running(self, exercise: Exercise, source: Source) -> Verdict | None:
        """Return the verdict on an exercise if the text, the folder or an earlier check of the same code decides it."""
        if exercise.experiment:
            return judged(exercise, self.path.parent)
        for name in exercise.names:
            if name not in source.names:
                return absent(
                    exercise, name, source.names - {each for one in self.course.exercises for each in one.names}
                )
        digest, verdict = self.kept.get(exercise.id, ("", None))
        return verdict if digest and digest == source.digest(exercise.names) else None

    def ran(self, numbers: Sequence[str], source: Source) -> tuple[dict[str, Verdict], str]:
        """Run the file for the exercises `numbers`. Returns their verdicts, or why the file cannot be run."""
        with tempfile.TemporaryDirectory(prefix="glassformer-learn-") as name:
            out = Path(name)
            words = [str(self.path.resolve()), str(self.course.folder), ",".join(numbers), name, str(self.limit)]
            code = self.run(words, self.limit)
            stack = out / "stack.txt"
            place = hanging(stack.read_text("utf-8", "replace") if stack.is_file() else "", self.path.resolve())
            lines = out / "verdicts.jsonl"
            rows: list[dict[str, Any]] = [
                json.loads(line) for line in (lines.read_text("utf-8").splitlines() if lines.is_file() else ())
            ]
        if problem := next((str(row["problem"]) for row in rows if "problem" in row), ""):
            return {}, f"{self.path.name}: {problem}"
        found = {row["exercise"]: Verdict.plain(row) for row in rows if "exercise" in row}
        for number, verdict in found.items():
            if verdict.done:
                self.kept[number] = (source.digest(self.course.exercise(number).names), verdict)
        if not any("end" in row for row in rows):
            why = f"its code ended the Python process (exit code {code})"
            if code is None or place:
                why = f"its code took longer than {self.limit:g} s and was stopped{place}. Is there an endless loop?"
            begun = [row["begun"] for row in rows if "begun" in row]
            if not begun:
                return {}, f"{self.path.name}: while it was imported, {why}"
            found[begun[-1]] = Verdict(begun[-1], "stopped", why)
            for number in numbers[numbers.index(begun[-1]) + 1 :]:
                found[number] = Verdict(number, "stopped", f"not reached: {begun[-1]} was stopped before")
        return found, ""


def in_new_process(words: list[str], limit: float) -> int | None:
    """Do the work in a new Python, which takes seconds to start."""
    return run_child(words, limit, "glassformer.learn.judge")


def warmed() -> Run:
    """Return a way to do the work that imports torch once, here, and forks for each check, where that can be done."""
    if not hasattr(os, "fork"):
        return in_new_process
    from glassformer.learn import judge

    def forked(words: list[str], limit: float) -> int | None:
        process = os.fork()
        if process == 0:
            code = 1
            with suppress(BaseException):
                os.setsid()
                void = os.open(os.devnull, os.O_RDWR)
                for stream in range(3):
                    os.dup2(void, stream)
                judge.main(words)
                code = 0
            os._exit(code)
        return waited(process, limit)

    return forked


def waited(process: int, limit: float) -> int | None:
    """Return a forked process's exit code, or None if it had to be killed; all that it started is killed."""
    end = time.monotonic() + limit + 5
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return None
    finally:
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(process, 0)


def remarks(source: Source) -> list[str]:
    """Say what in a file is allowed but surely not meant. Errors: `DataError` for a file that Python cannot read."""
    return [
        f"{name} is defined {len(lines)} times, in lines {', '.join(map(str, lines))}; Python uses the last."
        for name, lines in source.twice.items()
    ]
