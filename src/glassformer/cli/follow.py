"""Following a run to its end: events to the report, signals to the run."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol, runtime_checkable

from glassformer.data.config import TEXT, DataConfig
from glassformer.foundation.errors import ResourceError
from glassformer.foundation.launched import launched
from glassformer.train.record.events import Event, Finished
from glassformer.train.record.report import Reporter

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@runtime_checkable
class Interruptible(Protocol):
    """What a signal can stop; `study.pool.Pool` is one."""

    def interrupt(self) -> None:
        """Save and stop after the present step."""
        ...


@runtime_checkable
class Run(Interruptible, Protocol):
    """What is followed; `train.run.session.Session` is one."""

    def train(self) -> Iterator[Event]:
        """Train, and tell."""
        ...


class Quit(KeyboardInterrupt):
    """A signal that ends the program at once."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Signals:
    """While it is entered: the first Ctrl-C or SIGTERM lets `run` save and stop, the second quits at once.

    A checkpoint that is being written in the background when the second comes is still finished.

    Before there is a run (data is being read), the first quits at once too. Of several processes none quits at the
    second: torchrun passes on to each what the terminal has sent it already, and kills what has not ended after a while
    (`torchrun --shutdown-timeout`, 30 s).
    """

    def __init__(self) -> None:
        self.place = launched()
        self.run: Interruptible | None = None
        self.number: int | None = None
        """Of the signal that came, if one did."""

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
            more = "" if self.place.count > 1 else " Send it again to quit at once, without saving."
            with suppress(OSError):  # os.write, as a print may be under way just where the signal came
                os.write(2, f"\nSaving a checkpoint after this step.{more}\n".encode())


def follow(
    run: Run,
    folder: Path,
    signals: Signals,
    watch: Callable[[Event], None] | None = None,
    hint: str = "",
    agreed: Callable[[int], float] | None = None,
    track: str | None = None,
) -> int:
    """Train to the end or to the first signal; `watch` sees each event, `hint` is told at the end.

    `track`: who else is told of the figures.

    Of several processes only the first shows and keeps anything; `agreed` is then the largest of a number they each
    have, so that all of them end by the same signal. Returns the exit code.
    """
    signals.run = run
    finished = False
    with Reporter(folder, track=track) if signals.place.first else nullcontext(nothing) as report:
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
            f"What came last could not be written in {folder}, and is lost: {', '.join(unwritten)}. The checkpoints "
            "are whole. Make room, or the folder writable, before the next run."
        )
    return 0 if finished else 128 + (number or signal.SIGINT)


def next_command(folder: Path, data: DataConfig) -> str:
    """What a user may type when a run is trained."""
    run = shlex.quote(str(folder))
    if data.task == TEXT and data.layout == "decoder":
        return f"Generate text: glassformer generate {run} --prompt TEXT"
    if data.task == TEXT and data.test_text is None:
        return f"Score it on another text: glassformer evaluate {run} --data.text FILE"
    return f"Score it on the test split: glassformer evaluate {run}"


def nothing(event: Event) -> None:
    """What a process does with an event that another shows."""
