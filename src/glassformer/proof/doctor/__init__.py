"""Diagnoses a run: probes of its files, its data, and its model before and after training."""

from __future__ import annotations

from glassformer.proof.doctor import (
    answers,
    finding,
    heads,
    layers,
    learning,
    running_text,
    targets,
    texts,
    trajectory_case,
)
from glassformer.proof.doctor.finding import Probe
from glassformer.train.tasks import Task
from glassformer.train.tasks.text import Text

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
OF_TOKENS = ("labels", "padding-in-loss", "embedding", "pooling", "source", "order", "cache")
"""Probes of a model that reads tokens, or that reads or writes a text."""
PROBES = (*finding.PROBES, *texts.PROBES, *OF_THE_MODEL)
"""The probes of a run on pairs or labelled texts."""


def probes_for(task: Task) -> tuple[Probe, ...]:
    """Return the probes of a run on this task."""
    if not task.layout.tokens:
        model = (each for each in OF_THE_MODEL if each.name not in OF_TOKENS)
        return (*finding.PROBES, *trajectory_case.PROBES, *model)
    return (*finding.PROBES, *running_text.PROBES, *OF_THE_MODEL) if isinstance(task, Text) else PROBES
