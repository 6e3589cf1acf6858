"""The settings of beam search: its width, groups, and how answers are ranked. Imports no torch.

`decode/beam.py` implements the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glassformer.base.bounds import at_least, at_most, placed
from glassformer.base.errors import ConfigError
from glassformer.base.typed import check_types

MOST_BEAM = 1024
MOST_PENALTY = 10


@dataclass(frozen=True)
class BeamSettings:
    """How answers are searched for; a frozen dataclass, checked when made. Errors: `ConfigError`."""

    section: ClassVar[str] = ""

    beam: int = 1
    """Beam search: beam width, the hypotheses kept at each step; 1: off, greedy decoding or sampling."""
    length_penalty: float = 0.6
    """Beam search: log-probability is divided by ((5 + tokens) / 6) to this power; above 0 favours longer answers."""
    coverage_penalty: float = 0.0
    """Beam search: weight of the penalty for source tokens that got little attention; 0: off."""
    beam_groups: int = 1
    """Diverse beam search: equal groups of the beam, each discouraged from what earlier ones just chose; 1: off."""
    diversity: float = 0.5
    """Diverse beam search: penalty of a token, in nats, for each hypothesis of an earlier group that just chose it."""
    early_stop: bool = False
    """Beam search: stop as soon as `beam` answers are finished, even if an unfinished one could still be better."""

    def __post_init__(self) -> None:
        check_types(self, self.section)
        self.check_beam()

    def check_beam(self) -> None:
        """Refuse numbers out of bounds, and settings that contradict each other. Errors: `ConfigError`."""
        at_least(self, self.section, 1, "beam", "beam_groups", advice={"beam": "4; 1 is greedy decoding"})
        at_most(self, self.section, MOST_BEAM, "beam", "beam_groups")
        at_least(self, self.section, 0, "coverage_penalty", "diversity")
        at_most(self, self.section, MOST_PENALTY, "coverage_penalty", "diversity")
        beam, groups, where = (placed(self.section, name) for name in ("beam", "beam_groups", "length_penalty"))
        if not abs(self.length_penalty) <= MOST_PENALTY:
            raise ConfigError(
                f"{where} must be from -{MOST_PENALTY} to {MOST_PENALTY}; got {self.length_penalty}. "
                f"Try {where}=0.6; 0 ranks by log-probability alone."
            )
        if self.beam % self.beam_groups:
            even = self.beam_groups * max(1, self.beam // self.beam_groups)
            raise ConfigError(
                f"{groups} must divide {beam} evenly; got {beam}={self.beam} and {groups}={self.beam_groups}. "
                f"Try {beam}={even}."
            )
        if self.beam == 1 and (self.coverage_penalty or self.early_stop):
            name = placed(self.section, "coverage_penalty" if self.coverage_penalty else "early_stop")
            raise ConfigError(f"{name} needs beam search; got {beam}=1. Try {beam}=4, or remove {name}.")


ONE_BEAM = BeamSettings()
"""No beam search: each token is the most likely one, or is drawn."""
