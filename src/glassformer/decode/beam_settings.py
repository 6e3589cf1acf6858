"""The settings of beam search: its width, groups, and how answers are ranked. Imports no torch.

`decode/beam.py` implements the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glassformer.base.contradictions import BEAM, refuse
from glassformer.base.settings import check, setting

MOST_BEAM = 1024
MOST_PENALTY = 10


@dataclass(frozen=True)
class BeamSettings:
    """How answers are searched for; a frozen dataclass, checked when made. Errors: `ConfigError`."""

    section: ClassVar[str] = ""

    beam: int = setting(1, 1, MOST_BEAM, advice="4; 1 is greedy decoding")
    """Beam search: beam width, the hypotheses kept at each step; 1: off, greedy decoding or sampling."""
    length_penalty: float = setting(0.6, -MOST_PENALTY, MOST_PENALTY, advice="0.6; 0 ranks by log-probability alone")
    """Beam search: log-probability is divided by ((5 + tokens) / 6) to this power; above 0 favours longer answers."""
    coverage_penalty: float = setting(0.0, 0, MOST_PENALTY)
    """Beam search: weight of the penalty for source tokens that got little attention; 0: off."""
    beam_groups: int = setting(1, 1, MOST_BEAM)
    """Diverse beam search: equal groups of the beam, each discouraged from what earlier ones just chose; 1: off."""
    diversity: float = setting(0.5, 0, MOST_PENALTY)
    """Diverse beam search: penalty of a token, in nats, for each hypothesis of an earlier group that just chose it."""
    early_stop: bool = False
    """Beam search: stop as soon as `beam` answers are finished, even if an unfinished one could still be better."""

    def __post_init__(self) -> None:
        check(self, self.section)
        refuse(self, BEAM, self.section)


ONE_BEAM = BeamSettings()
"""No beam search: each token is the most likely one, or is drawn."""
