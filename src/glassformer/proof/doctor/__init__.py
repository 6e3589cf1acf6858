"""Diagnoses a run: probes of its files, its data, and its model before and after training."""

from __future__ import annotations

from glassformer.proof.doctor import answers, finding, learning, parts, texts
from glassformer.proof.doctor.finding import Probe
from glassformer.train.tasks import Task
from glassformer.train.tasks.task import ROLLOUT

__all__ = ["PROBES", "Probe", "probes_for"]

OF_THE_MODEL: tuple[Probe, ...] = (
    *learning.TARGETS,
    answers.REPEATABLE,
    *parts.EQUATION,
    *parts.LAYERS,
    *answers.PROBES,
    *parts.HEADS,
    *learning.LEARNING,
)
"""Probes of the model, in order: each comes after the probes it needs."""
OF_TOKENS = ("embedding", "source", "order", "cache")
"""Probes of a model that reads tokens."""
PROBES = (*finding.PROBES, *texts.OF_PAIRS, *OF_THE_MODEL)
"""The probes of a run on pairs or labelled texts."""


def probes_for(task: Task) -> tuple[Probe, ...]:
    """Return the probes of a run on this task."""
    acts = ROLLOUT in task.uses
    own = texts.OF_EPISODES if acts else None if task.window is None else texts.OF_TEXT
    left_out = (*(() if task.layout.tokens else OF_TOKENS), *(texts.LEFT_OUT if acts else ()))
    every = PROBES if own is None else (*finding.PROBES, *own, *OF_THE_MODEL)
    return tuple(each for each in every if each.name not in left_out)
