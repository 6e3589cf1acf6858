"""What is wrong with a run: probes of its files, its data, its model as it begins and as it was trained."""

from __future__ import annotations

from glassformer.data.config import TEXT
from glassformer.proof.doctor import answers, files, heads, layers, learning, running_text, targets, texts
from glassformer.proof.doctor.finding import Probe

__all__ = ["PROBES", "Probe", "probes_for"]

OF_THE_MODEL: tuple[Probe, ...] = (
    *targets.PROBES,
    answers.REPEATABLE,
    *heads.EQUATION,
    *layers.PROBES,
    *answers.PROBES,
    *heads.PROBES,
    *learning.PROBES,
)
"""In order: a probe comes after those that it needs."""
PROBES = (*files.PROBES, *texts.PROBES, *OF_THE_MODEL)
"""Of a run on pairs or labelled texts."""


def probes_for(task: str) -> tuple[Probe, ...]:
    """The probes of a run with this `data.task`."""
    return (*files.PROBES, *running_text.PROBES, *OF_THE_MODEL) if task == TEXT else PROBES
