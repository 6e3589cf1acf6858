"""The thresholds by which a head is said to have a role, in one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Thresholds, all in [0, 1]. Two are published; the others were chosen on planted and on trained heads."""

    strong: float = 0.6
    """Least corrected score S' of a role that a head clearly has."""
    strong_argmax: float = 0.9
    """Least share of queries whose largest weight is on the role's keys (Voita et al. 2019: a positional head)."""
    spread: float = 0.15
    """How far S' of one length, or of the control, may differ from the overall S'."""
    partial: float = 0.3
    """Least S' of a role that a head has in part."""
    sink: float = 0.5
    """Weight on special tokens above which a head without a role is called a sink."""
    diffuse: float = 0.8
    """Normalised entropy above which a head without a role is called diffuse."""
    needed: float = 0.01
    """Least drop of a needed head: the lower end of the drop's interval must reach it."""
    solved: float = 0.1
    """Least base metric at which a model has something to lose."""
    alike: float = 0.05
    """Largest divergence, in bits, at which two heads are called similar."""


THRESHOLDS = Thresholds()
