"""Diagnoses a run: probes of its files, its data, and its model before and after training."""

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
"""Probes of the model, in order: each comes after the probes it needs."""
PROBES = (*files.PROBES, *texts.PROBES, *OF_THE_MODEL)
"""The probes of a run on pairs or labelled texts."""


def probes_for(task: str) -> tuple[Probe, ...]:
    """Return the probes of a run with this `data.task`."""
    return (*files.PROBES, *running_text.PROBES, *OF_THE_MODEL) if task == TEXT else PROBES
