"""What a run tells its user: the events of training, and the Reporter that shows and keeps them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TextIO

from rich import progress
from rich.console import Console
from rich.text import Text

from glassformer.store.files import write_text_atomically

Metric = float | int | str
"""One figure of an evaluation; text for what names a measure, such as the sacrebleu signature."""


@dataclass(frozen=True)
class Started:
    """First event. `step` steps lie behind (0: a new run) of `steps`; `notes` are lines for the user.

    Notes say what was chosen and why: device, precision, threads, parameters, sizes of the data, share of padding.
    """

    step: int
    steps: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """One step is done, the weights are updated. `loss` is per target token, in nats."""

    step: int  # counted from 1
    steps: int
    epoch: int
    loss: float
    learning_rate: float
    grad_norm: float  # before clipping
    tokens_per_second: float  # real tokens, source and target
    pad_share: float  # of this batch, 0 to 1
    seconds: float  # since training began in this process


class Sample(NamedTuple):
    """One example of an evaluation, as text."""

    source: str
    target: str
    output: str


@dataclass(frozen=True)
class Evaluated:
    """The dev split was scored after `step` steps. Comes before the `Saved` of the same step."""

    step: int
    metrics: dict[str, Metric]
    samples: list[Sample] = field(default_factory=list)
    is_best: bool = False


@dataclass(frozen=True)
class Saved:
    """A checkpoint is complete on disk."""

    step: int
    path: Path


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step: "interrupted" (the last event) or "patience" (`Finished` follows)."""

    step: int
    reason: str


@dataclass(frozen=True)
class Finished:
    """Last event of a run that needs no more training. `best_step` is none where nothing was evaluated."""

    step: int
    seconds: float
    best_step: int | None = None
    best_metrics: dict[str, Metric] = field(default_factory=dict)


Event = Started | Progress | Evaluated | Saved | Stopped | Finished


@dataclass(frozen=True)
class ParameterRow:
    """One tensor of a model, and its share (0 to 1) of all its numbers."""

    module: str
    shape: tuple[int, ...]
    count: int
    share: float


@dataclass(frozen=True)
class ParameterTable:
    """Where the parameters are. A tensor used in two places stands once, so that the counts add up to `total`."""

    rows: list[ParameterRow]
    total: int


class Reporter:
    """Shows the events of a run on a terminal and keeps them in its folder. Give it each event; close it by `with`.

    `metrics.jsonl` holds what is the same at every repetition of the run, `timing.jsonl` the clock's side of the same
    steps, `log.txt` what was shown, `samples/` the sample outputs. A resumed run first drops what lies beyond its step.
    On a terminal one line moves; elsewhere about twenty plain lines are written, by count of steps and not by time.
    """

    def __init__(self, run: Path, console: Console | None = None) -> None:
        self.records = Records(run)
        self.console = console or Console(stderr=True)
        self.bar: progress.Progress | None = None
        self.first: Progress | None = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
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
            case Evaluated():
                self.records.evaluation(event)
                best = " (best so far)" if event.is_best else ""
                self.say(f"step {event.step}: {figures(event.metrics)}{best}")
                for sample in event.samples:
                    self.say(sample_text(sample))
            case Saved():
                self.say(f"step {event.step}: saved {event.path}")
            case Stopped():
                ends = {"patience": "no improvement for as long as training.patience allows", "interrupted": "as asked"}
                self.say(f"step {event.step}: stopped, {ends.get(event.reason, event.reason)}")
            case Finished():
                best = f"; best at step {event.best_step}: {figures(event.best_metrics)}" if event.best_metrics else ""
                self.say(f"done: step {event.step} after {duration(event.seconds)}{best}")

    def say(self, text: str) -> None:
        """One message, above the moving line if there is one, and into `log.txt`."""
        self.console.print(Text(text), soft_wrap=True)
        self.records.log(text)

    def moving_line(self, event: Started) -> progress.Progress:
        """The line that moves on a terminal, begun."""
        # The text fits 80 columns; a bar of no set width takes what a wider terminal leaves.
        columns = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn(bar_width=None))
        bar = progress.Progress(*columns, console=self.console, refresh_per_second=4, expand=True)
        bar.add_task("", total=event.steps, completed=event.step)
        bar.start()
        return bar

    def show_progress(self, event: Progress) -> None:
        """Move the line, and every so many steps write one."""
        first = self.first = self.first or event  # not counted, as it takes longer than those that follow
        done = event.step - first.step
        left = duration((event.seconds - first.seconds) / done * (event.steps - event.step)) if done else "?"
        text = (
            f"step {event.step}/{event.steps} {event.step / event.steps:.0%} {left} left, "
            f"loss {event.loss:.4f}, lr {event.learning_rate:.1e}, "
            f"{event.tokens_per_second:,.0f} tok/s, pad {event.pad_share:.0%}"
        )
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=event.step, description=text)
        if not done or event.step % line_interval(event.steps) == 0 or event.step == event.steps:
            self.records.log(text)
            if self.bar is None:
                self.console.print(Text(text), soft_wrap=True)


class Records:
    """The files in which a run tells what happened."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.files: dict[str, TextIO] = {}

    def open(self, step: int) -> None:
        """Begin to write after `step` steps: what an interrupted run wrote beyond them is dropped first."""
        for name in ("metrics.jsonl", "timing.jsonl"):
            drop_beyond(self.run / name, step)
        for path in (self.run / "samples").glob("step-*.txt"):
            if path.stem[5:].isdecimal() and int(path.stem[5:]) > step:
                path.unlink()
        for name in ("metrics.jsonl", "timing.jsonl", "log.txt"):
            # buffering=1: each line reaches the system as it is written, so that a killed process loses none
            self.files[name] = (self.run / name).open("a", buffering=1, encoding="utf-8")

    def step(self, event: Progress) -> None:
        """One line of figures, and one of times."""
        values = asdict(event)
        times = {name: values.pop(name) for name in ("tokens_per_second", "seconds")}
        del values["steps"]
        self.write("metrics.jsonl", {"kind": "train", **values})
        self.write("timing.jsonl", {"step": event.step, **times})

    def evaluation(self, event: Evaluated) -> None:
        """One line of figures, and a file of samples."""
        self.write("metrics.jsonl", {"kind": "dev", "step": event.step, **event.metrics, "best": event.is_best})
        if event.samples:
            text = "\n\n".join(map(sample_text, event.samples)) + "\n"
            write_text_atomically(self.run / "samples" / f"step-{event.step:09d}.txt", text)

    def log(self, text: str) -> None:
        """One message with the time of day."""
        if "log.txt" in self.files:
            now = datetime.now().isoformat(" ", "seconds")
            self.files["log.txt"].write("".join(f"{now}  {line}\n" for line in text.splitlines()))

    def write(self, name: str, values: dict[str, object]) -> None:
        """One line of JSON; a number that is not finite, which JSON cannot say, is null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        self.files[name].write(json.dumps(finite) + "\n")

    def close(self) -> None:
        """Close the files."""
        for file in self.files.values():
            file.close()


def drop_beyond(path: Path, step: int) -> None:
    """Keep the lines of a .jsonl file up to `step`; a last line that a kill cut short goes too."""
    if not path.exists():
        return
    kept: list[str] = []
    before = path.read_text("utf-8", errors="replace")
    for line in before.splitlines(keepends=True):
        try:
            beyond = not line.endswith("\n") or json.loads(line)["step"] > step
        except (ValueError, KeyError, TypeError):
            beyond = True
        if beyond:
            break
        kept.append(line)
    if (after := "".join(kept)) != before:
        write_text_atomically(path, after)


def sample_text(sample: Sample) -> str:
    """The three texts under each other."""
    texts = sample._asdict() | {"output": sample.output + ("   (right)" if sample.output == sample.target else "")}
    return "\n".join(f"  {side}  {printable(text)}" for side, text in texts.items())


def printable(text: str) -> str:
    """`text` with a mark for each character that would steer the terminal or break the line."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def figures(metrics: dict[str, Metric]) -> str:
    """The numbers of an evaluation on one line."""
    numbers = {name: value for name, value in metrics.items() if not isinstance(value, str)}
    return ", ".join(
        f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items()
    )


def duration(seconds: float) -> str:
    """Seconds as 1:05, or 2:01:05."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")


def line_interval(steps: int) -> int:
    """Steps between two plain lines: 1, 2 or 5 times a power of ten, so that a run of `steps` has about twenty."""
    wanted = max(1.0, steps / 20)
    power = 10 ** math.floor(math.log10(wanted))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= wanted)
