"""Reading the sample texts that a run saved at its evaluations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MOST = 30
"""The most evaluations to return, the newest ones."""
LONGEST = 20_000
"""The most characters of one evaluation."""
NAME = re.compile(r"step-(\d{9,})\.txt")


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
