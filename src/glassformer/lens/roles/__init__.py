"""Diagnosing what each head of a model does: its role, its score beyond chance, and the loss without the head."""

from glassformer.lens.roles.diagnosis import Diagnosis, diagnose, diagnose_run
from glassformer.lens.roles.probe import Probe, induction_probe, pairs_probe
from glassformer.lens.roles.roles import ROLES, THRESHOLDS, Thresholds

__all__ = [
    "ROLES",
    "THRESHOLDS",
    "Diagnosis",
    "Probe",
    "Thresholds",
    "diagnose",
    "diagnose_run",
    "induction_probe",
    "pairs_probe",
]
