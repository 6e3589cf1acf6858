"""The files in which a run records its events; apart from times, a repeated run writes the same ones."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.store.files import explained, sync_file, write_text_atomically
from glassformer.store.lock import RunLock, lock_on
from glassformer.train.record.curves import FOLDER, Curves
from glassformer.train.record.events import Evaluated, Overflowed, Progress
from glassformer.train.record.lines import Lines
from glassformer.train.record.wording import sample_text

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
            self.curves.step(event)

    def overflowed(self, event: Overflowed) -> None:
        """Write one line of figures."""
        self.write("metrics.jsonl", {"kind": "overflowed", **asdict(event)})
        if self.curves:
            self.curves.overflowed(event)

    def evaluation(self, event: Evaluated) -> None:
        """Write one line of metrics, and a file of samples."""
        self.write("metrics.jsonl", {"kind": "dev", "step": event.step, **event.metrics, "best": event.is_best})
        if event.samples:
            text = "\n\n".join(map(sample_text, event.samples)) + "\n"
            self.samples[self.run / "samples" / f"step-{event.step:09d}.txt"] = text
            self.write_samples()
        if self.curves:
            self.curves.evaluation(event)

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
            self.files["log.txt"].write("".join(f"{now}  {line}\n" for line in text.splitlines()))

    def write(self, name: str, values: dict[str, object]) -> None:
        """Write one line of JSON; a number that is not finite, which JSON has no word for, becomes null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        self.files[name].write(json.dumps(finite) + "\n")

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
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
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
