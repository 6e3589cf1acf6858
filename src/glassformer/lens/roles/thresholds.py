"""From which figures on a head is said to have a role: the one table of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """All are shares in [0, 1]. Two are published; the others were chosen on planted and on trained heads."""

    strong: float = 0.6
    """Corrected score S' of a role that a head clearly has."""
    strong_argmax: float = 0.9
    """Share of queries whose largest weight lies there (Voita et al. 2019: a positional head)."""
    spread: float = 0.15
    """How far S' of one length, or of the control, may lie from S' of all."""
    partial: float = 0.3
    """S' of a role that a head has in part."""
    sink: float = 0.5
    """Weight on special tokens of a head without a role that is called a sink."""
    diffuse: float = 0.8
    """Entropy, as a share of the largest, above which a head reads everything alike."""
    needed: float = 0.01
    """What removing a head must cost at least, by the interval's end that is nearer to nothing."""
    solved: float = 0.1
    """Least base figure of a model that has something to lose."""
    alike: float = 0.05
    """Divergence, in bits, up to which two heads are called similar."""


THRESHOLDS = Thresholds()
