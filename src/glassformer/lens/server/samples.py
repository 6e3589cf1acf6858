"""What a run wrote at its evaluations, step by step, as it has kept it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MOST = 30
"""Evaluations that are told of, the newest ones."""
LONGEST = 20_000
"""Characters of one of them."""
NAME = re.compile(r"step-(\d{9,})\.txt")


class Sample(NamedTuple):
    """The texts of one evaluation."""

    step: int
    text: str
    cut: bool
    """Whether there was more."""


def samples(run: Path) -> list[Sample]:
    """Those of the newest evaluations, in their order; a file that training deletes meanwhile is left out."""
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
