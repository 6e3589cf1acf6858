"""Reading what a run logs while it may still be in training: metrics, speed, and the samples of its evaluations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"
SPEED = "tokens_per_second"
MOST = 30
"""The most evaluations to return, the newest ones."""
LONGEST = 20_000
"""The most characters of one evaluation."""
NAME = re.compile(r"step-(\d{9,})\.txt")


def figures(run: Path, since: int = 0) -> list[dict[str, Any]]:
    """Return the complete lines of a run's metrics from number `since` on; training lines include their speed.

    A last line that is still being written is left out. A line that cannot be read has the kind "damaged".
    """
    found = [_read(line) for line in _whole(run / METRICS)[since:]]
    asked = {each["step"]: each for each in found if each.get("kind") == "train" and isinstance(each.get("step"), int)}
    for line in reversed(_whole(run / TIMING) if asked else []):  # from the end, as the new lines are wanted
        told = _read(line)
        step = told.get("step")
        if not isinstance(step, int):
            continue
        if told.get("kind") != "damaged" and step < min(asked):
            break
        if step in asked and SPEED in told:
            asked[step].setdefault(SPEED, told[SPEED])
    return found


def _whole(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def _read(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=lambda _: None)  # a browser cannot parse NaN
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"kind": "damaged", "step": 0}


class Sample(NamedTuple):
    """The sample texts of one evaluation."""

    step: int
    text: str
    cut: bool
    """Whether the text was cut."""


def samples(run: Path) -> list[Sample]:
    """Return the samples of the newest evaluations in order; skip a file that training deletes at this moment."""
    paths = (run / "samples").glob("step-*.txt")
    found = {int(match[1]): path for path in paths if (match := NAME.fullmatch(path.name))}
    told: list[Sample] = []
    for step in sorted(found)[-MOST:]:
        try:
            text = found[step].read_text("utf-8", errors="replace").rstrip("\n")
        except OSError:
            continue
        told.append(Sample(step, text[:LONGEST], len(text) > LONGEST))
    return told
