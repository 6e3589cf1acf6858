"""What is wrong with a run: probes of its files, its data, its model as it begins and as it was trained."""

from __future__ import annotations

from glassformer.proof.doctor import answers, files, heads, layers, learning, targets, texts
from glassformer.proof.doctor.finding import Probe

__all__ = ["PROBES", "Probe"]

PROBES: tuple[Probe, ...] = (
    *files.PROBES,
    *texts.PROBES,
    *targets.PROBES,
    answers.REPEATABLE,
    *heads.EQUATION,
    *layers.PROBES,
    *answers.PROBES,
    *heads.PROBES,
    *learning.PROBES,
)
"""In order: a probe comes after those that it needs."""
