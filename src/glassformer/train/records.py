"""What happens in training, as values that a caller may show, keep or ignore, and the files that record it."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.base.errors import CheckpointError, ConfigError, ResourceError, install
from glassformer.store.files import FULL, explained, sync_file, write_text_atomically
from glassformer.store.folders import RunLock, lock_on

Metric = float | int | str
"""One metric of an evaluation; text for the name of a measure, such as the sacrebleu signature."""


@dataclass(frozen=True)
class Started:
    """The first event: `step` of `steps` are done (0: a new run); `notes` are lines for the user.

    Notes say what was chosen and why: device, precision, threads, parameters, sizes of the data, share of padding.
    """

    step: int
    steps: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Progress:
    """One step is done and the weights are updated. `loss` is per target token, in nats."""

    step: int  # counted from 1
    steps: int
    epoch: int
    loss: float
    learning_rate: float
    grad_norm: float  # before clipping
    tokens_per_second: float  # real tokens, source and target
    pad_share: float  # of this batch, 0 to 1
    seconds: float  # since training began in this process


@dataclass(frozen=True)
class Overflowed:
    """The update of this step was skipped because its gradient overflowed float16; comes before its `Progress`."""

    step: int
    scale: float
    """The factor of the next loss."""
    so_far: int
    """The number of such updates in the whole run."""


class Sample(NamedTuple):
    """One sample of an evaluation, as text."""

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
    decided_by: str = ""
    """Which metric tells evaluations apart, where training.metric has been the same at each; see `deciding`."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is complete on disk. Written in the background, it may be reported some steps after its own.

    `notes`: lines for the user, for example about an old checkpoint that could not be deleted.
    """

    step: int
    path: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsaved:
    """A checkpoint could not be written; training continues, and the next one is tried when it is due.

    Reported once for all that fail in a row. `reason` is a whole message: the system's error, bytes needed and free.
    """

    step: int
    reason: str


@dataclass(frozen=True)
class Skipped:
    """The update of this step was skipped because loss or gradient was not finite; comes before its `Progress`.

    It is number `number` of the `allowed` ones of the run; `reason` names figures, module and batch.
    """

    step: int
    number: int
    allowed: int
    reason: str


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step: "interrupted" (the last event) or "patience" (`Finished` follows)."""

    step: int
    reason: str


@dataclass(frozen=True)
class Finished:
    """The last event of a run that needs no more training. `best_step` is None if nothing was evaluated."""

    step: int
    seconds: float
    best_step: int | None = None
    best_metrics: dict[str, Metric] = field(default_factory=dict)
    decided_by: str = ""
    """As in `Evaluated`."""
    never_moved: str = ""
    """Which scores were the same at every evaluation, in words."""


Event = Started | Progress | Skipped | Overflowed | Evaluated | Saved | Unsaved | Stopped | Finished


# Format figures, samples and times for the user.

MARKS = {"\n": "⏎"}
"""Substitutes for characters that would break the line; all others become U+FFFD."""
LARGE = 1e6


def sample_text(sample: Sample) -> str:
    """The three texts, one below the other."""
    texts = sample._asdict() | {"output": sample.output + ("   (right)" if sample.output == sample.target else "")}
    return "\n".join(f"  {side}  {printable(text)}" for side, text in texts.items())


def printable(text: str) -> str:
    """`text` with a mark for each character that would control the terminal or break the line; ⏎ for a newline."""
    return "".join(each if each.isprintable() else MARKS.get(each, "\ufffd") for each in text)


def figures(metrics: Mapping[str, Metric]) -> str:
    """The numeric metrics of an evaluation on one line."""
    numbers = {name: value for name, value in metrics.items() if not isinstance(value, str)}
    return ", ".join(f"{name} {figure(value)}" for name, value in numbers.items())


def figure(value: Metric) -> str:
    """A figure with four digits after the point; one that is so large that these say nothing, as 2.119e+14."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.3e}"


def duration(seconds: float) -> str:
    """Seconds as 1:05, or 2:01:05."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table, each column as wide as its widest cell; those at these places stand on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if place in right else "<" for place in range(len(widths))]
    lines = (
        " ".join(f" {cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in rows
    )
    return "\n".join(line[1:].rstrip() for line in lines)


def line_interval(steps: int) -> int:
    """Steps between two plain lines: 1, 2, 5 or 10 times a power of ten, for about twenty lines in a run of `steps`."""
    wanted = max(1.0, steps / 20)
    power = 10 ** math.floor(math.log10(wanted))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= wanted)


def bytes_text(size: int) -> str:
    """Bytes as 512 B, 1.5 KiB, 20.3 MiB, 1.2 GiB."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**power:.1f} {'KMGT'[power - 1]}iB"


# The files in which a run records its events: a kill loses nothing of them, and a failing disk only delays them.


class Lines:
    """A file that grows by lines. What the disk does not take is kept in memory, and written first when it does."""

    def __init__(self, path: Path, lock: RunLock | None = None) -> None:
        """`lock`: the run's; a deleted file is only recreated while its folder is still the run's."""
        self.path = path
        self.lock = lock
        self.kept = b""
        self.reason = ""
        """Why something is kept in memory, if it is."""
        # unbuffered: each line reaches the system as it is written, so that a killed process loses none
        self.file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Add bytes. So TensorBoard's record writer can write into it, too."""
        self.kept += data
        self.flush()

    def flush(self) -> None:
        """Write what is kept, as far as the disk takes it; recreate the file if someone deleted it."""
        try:
            if os.fstat(self.file.fileno()).st_nlink == 0:
                if not self.path.parent.is_dir() or (self.lock and not self.lock.in_place()):
                    self.reason = "its folder was deleted"
                    return
                begun = self.path.open("ab", buffering=0)
                self.file.close()
                self.file = begun
            while self.kept:
                self.kept = self.kept[self.file.write(self.kept) :]
        except OSError as error:  # a read-only folder ends a run as little as a full one
            self.reason = FULL.get(error.errno or 0) or error.strerror or str(error)


FIGURES = ("metrics.jsonl", "timing.jsonl")


class Records:
    """The files in which a run records its events."""

    def __init__(self, run: Path, track: str | None = None) -> None:
        """`track`: where else to write the figures; see `TrainingConfig`."""
        self.run = run
        self.track = track
        self.curves: Curves | None = None
        self.files: dict[str, Lines] = {}
        self.samples: dict[Path, str] = {}
        """Samples that the disk did not take."""
        self.lock: RunLock | None = None
        """The lock by which this process trains the run, if it does."""

    def open(self, step: int) -> None:
        """Begin to write after `step` steps; first drop what an interrupted run wrote beyond them.

        Errors: those of `refuse_unusable`, before anything is changed.
        """
        refuse_unusable(self.run, step)
        self.lock = lock_on(self.run)
        for name in FIGURES:
            drop_beyond(self.run / name, step)
        for path in (self.run / "samples").glob("step-*.txt"):
            if path.stem[5:].isdecimal() and int(path.stem[5:]) > step:
                path.unlink()
        for name in (*FIGURES, "log.txt"):
            self.files[name] = Lines(self.run / name, self.lock)
        if self.track:
            self.curves = Curves(self.run, step, self.lock)
            self.files[FOLDER] = self.curves.file

    def step(self, event: Progress) -> None:
        """Write one line of figures and one of times."""
        values = asdict(event)
        times = {name: values.pop(name) for name in ("tokens_per_second", "seconds")}
        del values["steps"]
        self.write("metrics.jsonl", {"kind": "train", **values})
        self.write("timing.jsonl", {"step": event.step, **times})
        if self.curves:
            self.curves.figures("train", event.step, {name: getattr(event, name) for name in CURVES})

    def overflowed(self, event: Overflowed) -> None:
        """Write one line of figures."""
        self.write("metrics.jsonl", {"kind": "overflowed", **asdict(event)})
        if self.curves:
            self.curves.figures("train", event.step, {"loss_scale": event.scale})

    def evaluation(self, event: Evaluated) -> None:
        """Write one line of metrics, and a file of samples."""
        self.write("metrics.jsonl", {"kind": "dev", "step": event.step, **event.metrics, "best": event.is_best})
        if event.samples:
            text = "\n\n".join(map(sample_text, event.samples)) + "\n"
            self.samples[self.run / "samples" / f"step-{event.step:09d}.txt"] = text
            self.write_samples()
        if self.curves:
            self.curves.figures("dev", event.step, event.metrics)
            self.curves.samples(event.step, event.samples)

    def write_samples(self) -> None:
        """Write the samples not yet on disk, as far as it takes them; none into a folder that is not the run's."""
        if self.lock and not self.lock.in_place():
            return
        with suppress(CheckpointError, ResourceError):
            for path, text in list(self.samples.items()):
                write_text_atomically(path, text)
                del self.samples[path]

    @property
    def unwritten(self) -> list[str]:
        """The files that are behind because the disk does not take them, and why, if known."""
        lines = [f"{name} ({file.reason})" for name, file in self.files.items() if file.kept]
        return lines + [path.name for path in self.samples]

    def log(self, text: str) -> None:
        """Write one message with the time of day."""
        if "log.txt" in self.files:
            now = datetime.now().isoformat(" ", "seconds")
            self.files["log.txt"].write("".join(f"{now}  {line}\n" for line in text.splitlines()).encode())

    def write(self, name: str, values: dict[str, object]) -> None:
        """Write one line of JSON; a number that is not finite, which JSON has no word for, becomes null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        self.files[name].write(f"{json.dumps(finite)}\n".encode())

    def close(self) -> None:
        """Close the files, after one more try to write what is not written yet."""
        self.write_samples()
        for file in self.files.values():
            file.flush()
            file.file.close()


def refuse_unusable(run: Path, step: int) -> None:
    """Refuse a run folder whose history up to `step` cannot be continued. Errors: `CheckpointError`."""
    for name in (*FIGURES, "log.txt"):
        if (path := run / name).exists() and not path.is_file():
            raise CheckpointError(f"{path} must be a file, as a run appends lines to it; it is not. Move it away.")
    for name in ("samples", "checkpoints", FOLDER):
        if (path := run / name).exists() and not path.is_dir():
            raise CheckpointError(f"{path} must be a folder, as a run writes files into it; it is not. Move it away.")
    for name in FIGURES:
        dated_lines(run / name, step)


def sync_figures(run: Path) -> None:
    """Wait until the figures so far are on disk, so that no power cut takes those of steps that a checkpoint has.

    Errors: those of `explained`.
    """
    for name in FIGURES:
        path = (run / name).resolve()
        with explained(path, 0), suppress(FileNotFoundError):
            sync_file(path)


def drop_beyond(path: Path, step: int) -> None:
    """Keep the lines of a .jsonl file up to `step`; a last line that a kill cut short is dropped too."""
    if not path.exists():
        return
    after = "".join(dated_lines(path, step))
    if after.encode() != path.read_bytes():
        write_text_atomically(path, after)


def dated_lines(path: Path, step: int) -> list[str]:
    """The whole lines of a .jsonl file for steps up to `step`, all of which were on disk (`sync_figures`).

    After them there may be what a kill or a power cut leaves: half a line, or NULs, and whole lines after those.
    Errors: `CheckpointError` for a line without a step that is not after the last of them.
    """
    lines = whole_lines(path)
    steps = [step_of(line) for line in lines]
    damaged = steps.index(None) if None in steps else len(lines)
    before, behind = steps[:damaged], steps[damaged:]
    reached = step in (0, *before) or any(each is not None and each > step for each in before)
    if behind and (not reached or any(each is not None and each <= step for each in behind)):
        raise CheckpointError(
            f"{path}:{damaged + 1}: each line must be a JSON object with a step; got {lines[damaged][:60]!r}. Correct "
            "the line or delete it, or move the file away to continue without the figures so far."
        )
    kept = zip(before, lines[:damaged], strict=True)
    return [line.decode() + "\n" for of_step, line in kept if of_step is not None and of_step <= step]


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that a writer has ended; none if there is no file."""
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def step_of(line: bytes) -> int | None:
    """The step of a line of figures; None if it is no such line."""
    try:
        match json.loads(line):
            case {"step": int(step)}:
                return step
            case _:
                return None
    except (ValueError, RecursionError):
        return None


# The curves of a run for TensorBoard, beside `metrics.jsonl` and from the same events.

FOLDER = "tensorboard"
CURVES = ("loss", "learning_rate", "grad_norm", "pad_share", "tokens_per_second")
"""The figures of an update that have a curve."""
NAME = "events.out.tfevents."
"""How TensorBoard recognises its files; it reads the files of a folder in the order of their names."""


def refuse_untrackable(track: str | None) -> None:
    """Refuse a run that asks for curves if nothing can write them. Errors: `ConfigError` with the remedy."""
    if track is not None and find_spec("tensorboard") is None:
        raise ConfigError(
            f"training.track={track!r} needs the package tensorboard, which is not installed: "
            f"{install('track')}, then the same command; or remove training.track (metrics.jsonl has the figures too)."
        )


class Curves:
    """Event files in RUN/tensorboard, one for each start of the run.

    A file begins with a record that the run restarts after `step` steps: TensorBoard then hides what earlier files say
    about later steps. Each event is passed to the operating system at once, so that a kill loses none; what the disk
    does not take waits in memory, as with the lines of `metrics.jsonl`.
    """

    def __init__(self, run: Path, step: int, lock: RunLock | None = None) -> None:
        """`lock`: see `Lines`."""
        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        numbers = (path.name.removeprefix(NAME) for path in folder.iterdir())
        number = 1 + max((int(each) for each in numbers if each.isdecimal()), default=0)
        self.file = Lines(folder / f"{NAME}{number:06d}", lock)
        self._proto: Any = import_module("tensorboard.compat.proto.event_pb2")
        self._summary: Any = import_module("torch.utils.tensorboard.summary")
        self._records: Any = import_module("tensorboard.summary.writer.record_writer").RecordWriter(self.file)
        self._write(0, file_version="brain.Event:2")
        self._write(step + 1, session_log=self._proto.SessionLog(status=self._proto.SessionLog.START))

    def figures(self, group: str, step: int, values: Mapping[str, Metric]) -> None:
        """Add the numbers among `values` in one event, as GROUP/NAME; one that is not finite is left out."""
        numbers = {name: float(value) for name, value in values.items() if not isinstance(value, str)}
        made: Any = self._summary.Summary
        found = [
            made.Value(tag=f"{group}/{name}", simple_value=number)
            for name, number in numbers.items()
            if math.isfinite(number)
        ]
        self._write(step, summary=made(value=found))

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Add the samples of an evaluation as text, if there are any."""
        if samples:
            lines = "\n\n".join(map(sample_text, samples)).splitlines()
            text = "\n".join(f"    {line}" for line in lines)  # as code: the page reads Markdown
            self._write(step, summary=self._summary.text("samples", text))

    def _write(self, step: int, **what: object) -> None:
        event: Any = self._proto.Event(wall_time=time.time(), step=step, **what)
        self._records.write(event.SerializeToString())
