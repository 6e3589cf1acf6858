"""The files in which a run keeps what happened, the same at every repetition but for those of the clock."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TextIO

from glassformer.store.files import write_text_atomically
from glassformer.train.events import Evaluated, Progress
from glassformer.train.wording import sample_text


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
