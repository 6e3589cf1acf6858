"""Reading a run's metrics and speed from its log files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"
SPEED = "tokens_per_second"


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
