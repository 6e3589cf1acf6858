"""The curves of a run for TensorBoard, beside `metrics.jsonl` and from the same events."""

from __future__ import annotations

import math
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError
from glassformer.base.extras import install
from glassformer.store.lock import RunLock
from glassformer.train.record.events import Evaluated, Metric, Overflowed, Progress
from glassformer.train.record.lines import Lines
from glassformer.train.record.wording import sample_text

FOLDER = "tensorboard"
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
        self._records: Any = import_module("tensorboard.summary.writer.record_writer").RecordWriter(Binary(self.file))
        self._write(0, file_version="brain.Event:2")
        self._write(step + 1, session_log=self._proto.SessionLog(status=self._proto.SessionLog.START))

    def step(self, event: Progress) -> None:
        """Add the figures of one update."""
        names = ("loss", "learning_rate", "grad_norm", "pad_share", "tokens_per_second")
        self._figures(event.step, {f"train/{name}": getattr(event, name) for name in names})

    def overflowed(self, event: Overflowed) -> None:
        """Add the loss scale in float16, when it falls."""
        self._figures(event.step, {"train/loss_scale": event.scale})

    def evaluation(self, event: Evaluated) -> None:
        """Add the metrics of an evaluation, and its samples as text."""
        self._figures(event.step, {f"dev/{name}": value for name, value in event.metrics.items()})
        if event.samples:
            lines = "\n\n".join(map(sample_text, event.samples)).splitlines()
            text = "\n".join(f"    {line}" for line in lines)  # as code: the page reads Markdown
            self._write(event.step, summary=self._summary.text("samples", text))

    def _figures(self, step: int, values: dict[str, Metric]) -> None:
        """Add the numbers among `values` in one event; a number that is not finite is left out."""
        finite = {
            name: value for name, value in values.items() if not isinstance(value, str) and math.isfinite(float(value))
        }
        found: Any = self._summary.Summary(
            value=[self._summary.Summary.Value(tag=name, simple_value=float(value)) for name, value in finite.items()]
        )
        self._write(step, summary=found)

    def _write(self, step: int, **what: object) -> None:
        event: Any = self._proto.Event(wall_time=time.time(), step=step, **what)
        self._records.write(event.SerializeToString())


class Binary:
    """The interface that TensorBoard's record writer expects, over a growing file."""

    def __init__(self, file: Lines) -> None:
        self.file = file

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self.file.add(data)
