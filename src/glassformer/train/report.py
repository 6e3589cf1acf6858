"""The Reporter: shows the events of a run on a terminal, and records them in its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich import progress
from rich.console import Console
from rich.text import Text

from glassformer.train.records import (
    Evaluated,
    Event,
    Finished,
    Overflowed,
    Progress,
    Records,
    Saved,
    Skipped,
    Started,
    Stopped,
    Unsaved,
    duration,
    figures,
    line_interval,
    sample_text,
)


class Screen(Console):
    """Standard error. If a pipe's reader is gone, rich would end the program; here that is an ordinary error."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error, which is passed on to the caller."""
        raise BrokenPipeError


class Reporter:
    """Shows the events of a run on a terminal and records them in its folder. Call it with each event, in a `with`.

    `metrics.jsonl` holds what is the same whenever the run is repeated, `timing.jsonl` the times of the same steps,
    `log.txt` what was shown, `samples/` the sample outputs. A resumed run first drops what lies beyond its step. On a
    terminal one line is updated; elsewhere about twenty plain lines are written, spaced by steps and not by time. If
    nothing can be shown any more (`2>&1 | head -1`, a closed terminal), the files continue.
    """

    def __init__(self, run: Path, console: Console | None = None, track: str | None = None) -> None:
        """`track`: where else to write the figures; see `TrainingConfig`."""
        self.records = Records(run, track)
        self.console = console or Screen()
        self.bar: progress.Progress | None = None
        self.first: Progress | None = None
        self.behind = False
        """Whether the disk does not take the figures, and the user has been warned."""

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            with suppress(OSError):  # also with a quiet console: the bar has its own thread, which must end
                self.bar.stop()
        if isinstance(error, Exception):
            self.records.log(f"{type(error).__name__}: {error}")
        self.records.close()

    def __call__(self, event: Event) -> None:
        """Show and keep one event."""
        match event:
            case Started():
                self.records.open(event.step)
                for note in event.notes:
                    self.say(note)
                if self.console.is_terminal and not self.console.is_dumb_terminal:
                    self.bar = self.moving_line(event)
            case Progress():
                self.records.step(event)
                self.show_progress(event)
                behind = self.records.unwritten
                if behind and not self.behind:
                    self.say(
                        f"{self.records.run}: cannot be written now: {', '.join(behind)}. Training continues, keeps "
                        "the data in memory, and writes them as soon as it can"
                    )
                self.behind = bool(behind)
            case Overflowed():
                self.records.overflowed(event)
                self.say(
                    f"step {event.step}: skipped, as the gradient overflowed float16; the loss scale is now "
                    f"{event.scale:g} ({event.so_far} skipped so far)"
                )
            case Evaluated():
                self.records.evaluation(event)
                best = " (best so far)" if event.is_best else ""
                decided = event.decided_by and f"; {event.decided_by}"
                self.say(f"step {event.step}: {figures(event.metrics)}{best}{decided}")
                for sample in event.samples:
                    self.say(sample_text(sample))
            case Saved():
                self.say(f"step {event.step}: saved {event.path}")
                for note in event.notes:
                    self.say(note)
            case Unsaved():
                self.say(
                    f"step {event.step}: NOT SAVED; training goes on, and the next checkpoint is tried when it is due. "
                    f"{event.reason}"
                )
            case Skipped():
                self.say(f"step {event.step}: skipped, {event.number} of {event.allowed} allowed. {event.reason}")
            case Stopped():
                ends = {"patience": "no improvement for as long as training.patience allows", "interrupted": "as asked"}
                self.say(f"step {event.step}: stopped, {ends.get(event.reason, event.reason)}")
            case Finished():
                best = f"; best at step {event.best_step}: {figures(event.best_metrics)}" if event.best_metrics else ""
                decided = event.decided_by and f"; {event.decided_by}"
                self.say(f"done: step {event.step} after {duration(event.seconds)}{best}{decided}")
                if event.never_moved:
                    self.say(event.never_moved)

    def say(self, text: str) -> None:
        """Show one message, above the moving line if there is one, and add it to `log.txt`."""
        self.show(lambda: self.console.print(Text(text), soft_wrap=True))
        self.records.log(text)

    def show(self, write: Callable[[], object]) -> None:
        """Write to the console; the first system error there makes it quiet for good, and is not raised."""
        if self.console.quiet:
            return
        try:
            write()
        except OSError:
            self.console.quiet = True
            with suppress(OSError, ValueError):  # the interpreter flushes the stream at exit, and would fail again
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.console.file.fileno())
                os.close(nowhere)

    def moving_line(self, event: Started) -> progress.Progress | None:
        """Start the line that moves on a terminal; None if that failed."""
        # The text fits 80 columns; a bar without a fixed width takes what a wider terminal leaves.
        columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn(bar_width=None))
        bar = progress.Progress(*columns, console=self.console, refresh_per_second=4, expand=True)
        bar.add_task("", total=event.steps, completed=event.step)
        self.show(bar.start)
        return None if self.console.quiet else bar

    def show_progress(self, event: Progress) -> None:
        """Move the line, and at every `line_interval` steps write a plain one."""
        first = self.first = self.first or event  # not counted, as it takes longer than later steps
        done = event.step - first.step
        left = duration((event.seconds - first.seconds) / done * (event.steps - event.step)) if done else "?"
        text = (
            f"step {event.step}/{event.steps} {event.step / event.steps:.0%} {left} left, "
            f"loss {event.loss:.4f}, lr {event.learning_rate:.1e}, "
            f"{event.tokens_per_second:,.0f} tok/s, pad {event.pad_share:.0%}"
        )
        if (bar := self.bar) is not None:
            self.show(lambda: bar.update(bar.task_ids[0], completed=event.step, description=text))
        if not done or event.step % line_interval(event.steps) == 0 or event.step == event.steps:
            self.records.log(text)
            if self.bar is None:
                self.show(lambda: self.console.print(Text(text), soft_wrap=True))
