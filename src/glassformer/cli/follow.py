"""Follows a run to its end: passes its events to the reporter, and signals to the run."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from glassformer.base.errors import ResourceError
from glassformer.base.launched import launched
from glassformer.cli.terminal import notes_to
from glassformer.train.records import Event, Finished
from glassformer.train.report import Reporter

if TYPE_CHECKING:
    from glassformer.study.pool import Pool
    from glassformer.train.run.session import Session

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Quit(KeyboardInterrupt):
    """Raised by a signal that ends the program at once."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Signals:
    """Context manager: the first Ctrl-C or SIGTERM makes `run` save and stop, the second quits at once.

    If the second arrives while a checkpoint is being written in the background, that checkpoint is still finished.

    While there is no run yet (data is being read), the first signal also quits at once. With several processes, the
    second signal does not quit: torchrun forwards to each process a signal that the terminal has already sent it, and
    kills the processes that have not ended after a while (`torchrun --shutdown-timeout`, 30 s).
    """

    def __init__(self) -> None:
        self.place = launched()
        self.run: Session | Pool | None = None
        self.number: int | None = None
        """The signal that arrived, if one did."""

    def __enter__(self) -> Signals:
        self.before = {each: signal.signal(each, self.receive) for each in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, handler in self.before.items():
            signal.signal(each, handler)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.run is None or (self.number is not None and self.place.count == 1):
            raise Quit(number)
        if self.number is not None:
            return
        self.number = number
        self.run.interrupt()
        if self.place.first:
            again = "Press Ctrl-C" if number == signal.SIGINT else "Send the signal"
            more = "" if self.place.count > 1 else f" {again} again to quit at once, without saving."
            with suppress(OSError):  # os.write, because the signal may have interrupted a print
                os.write(2, f"\nSaving a checkpoint after this step.{more}\n".encode())


def follow(
    run: Session,
    folder: Path,
    signals: Signals,
    watch: Callable[[Event], None] | None = None,
    hint: str = "",
    agreed: Callable[[int], float] | None = None,
    track: str | None = None,
) -> int:
    """Train to the end or to the first signal, and return the exit code.

    `watch` is called with each event. `hint` is printed at the end of a finished run. `track` names a tracker that is
    also given the figures.

    With several processes, only the first prints and stores anything. `agreed` then returns the largest of the
    processes' numbers, so that all of them report the same signal.
    """
    signals.run = run
    finished = False
    with (
        Reporter(folder, track=track) if signals.place.first else nullcontext(nothing) as report,
        notes_to(report.say if isinstance(report, Reporter) else nothing),
    ):
        for event in run.train():
            report(event)
            if watch:
                watch(event)
            finished = isinstance(event, Finished)
        number = signals.number or 0
        number = int(agreed(number)) if agreed else number
        if isinstance(report, Reporter):
            if finished and hint:
                report.say(hint)
            if not finished:
                report.say(f"Continue with: glassformer resume {shlex.quote(str(folder))}")
    if isinstance(report, Reporter) and (unwritten := report.records.unwritten):
        raise ResourceError(
            f"The last records could not be written to {folder} and are lost: {', '.join(unwritten)}. The checkpoints "
            "are complete. Before the next run, free some space or make the folder writable."
        )
    return 0 if finished else 128 + (number or signal.SIGINT)


def nothing(event: object) -> None:
    """Ignore an event or a note, in a process that does not report."""
