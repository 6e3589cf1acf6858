"""Runs made up of events, and what is shown of them."""

import io
from pathlib import Path

from rich.console import Console

from glassformer.train.records import Evaluated, Progress, Sample, Saved, Started
from glassformer.train.report import Reporter

STEPS = 40


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def progress(step: int, seconds: float = 1.0) -> Progress:
    return Progress(
        step=step,
        steps=STEPS,
        epoch=step // 7,
        loss=3 / step,
        learning_rate=1e-3 * step,
        grad_norm=1 / 3,
        tokens_per_second=12345.6,
        pad_share=0.0625,
        seconds=seconds * step,
    )


def evaluated(step: int, **more: float) -> Evaluated:
    samples = [Sample("a b", "b a", "b a"), Sample("c d", "d c", f"c {step}")]
    return Evaluated(step, {"exact_match": 0.5, "n": 500, "bleu_signature": "nrefs:1", **more}, samples, is_best=True)


def events(first: int, last: int, seconds: float = 1.0):
    """A run from step `first` to `last`, evaluated and saved every ten steps."""
    yield Started(first - 1, STEPS, ["device: cpu, as there is no other"])
    for step in range(first, last + 1):
        yield progress(step, seconds)
        if step % 10 == 0:
            yield evaluated(step)
            yield Saved(step, Path("checkpoints") / f"step-{step:09d}")


def report(run: Path, stream: io.StringIO, *parts) -> str:
    follow(run, parts, stream)
    return stream.getvalue()


def follow(run: Path, parts, stream: io.StringIO) -> None:
    with Reporter(run, Console(file=stream)) as reporter:
        for event in parts:
            reporter(event)
