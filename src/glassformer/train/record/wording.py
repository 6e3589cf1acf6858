"""Format figures, samples and times for the user."""

from __future__ import annotations

import math
from datetime import timedelta

from glassformer.train.record.events import Metric, Sample

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


def figures(metrics: dict[str, Metric]) -> str:
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
