"""What a model of trajectories reads and writes: how many numbers, on which scale, and which actions there are."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, cast

from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, read_json
from glassformer.data.tokens.words import Labels
from glassformer.foundation.errors import DataError

if TYPE_CHECKING:  # the registry of tokenizers names these spaces, and must not load numpy
    from glassformer.data.trajectories.episodes import Episodes

TIMES = 16
"""Numbers that tell a step's place in its episode: sines and cosines, as many as one needs for 10,000 steps."""


@dataclass(frozen=True)
class Scales:
    """Statistics of the training episodes. Each vector has a number per number of an observation or an action."""

    observed: tuple[float, ...]
    """Means of the observations."""
    observed_spread: tuple[float, ...]
    """Their standard deviations; 1 where they do not vary."""
    acted: tuple[float, ...]
    """Means of the actions; empty if actions are numbered."""
    acted_spread: tuple[float, ...]
    acted_low: tuple[float, ...]
    """The least of each number of an action."""
    acted_high: tuple[float, ...]
    to_go: float
    """The largest return-to-go, without its sign; 1 if all are 0."""
    longest: int
    """Steps of the longest episode."""
    returns: tuple[float, float, float]
    """The lowest, the mean and the highest return of an episode, not discounted."""


class Spaces(Labels):
    """The spaces of observations and actions. Its entries are the actions by name; none if an action is a vector.

    It takes the place of a tokenizer: what it does with an action by number is what a label set does with a label.
    """

    kind = "trajectories"

    def __init__(self, scales: Scales, actions: tuple[str, ...] = ()) -> None:
        super().__init__(actions)
        self.scales = scales

    @property
    def n_observed(self) -> int:
        """S: numbers in an observation."""
        return len(self.scales.observed)

    @property
    def n_acted(self) -> int:
        """A: numbers that an action takes in what a model reads; one for each action, if actions are numbered."""
        return len(self.entries) or len(self.scales.acted)

    @property
    def n_features(self) -> int:
        """I: numbers at each place that a model reads: its kind, the return-to-go, observation, action and time."""
        return 3 + 1 + self.n_observed + self.n_acted + TIMES

    def check(self, episodes: Episodes, where: str) -> None:
        """Refuse episodes of another environment. Errors: `DataError` naming `where` they come from."""
        width = episodes.observations.shape[1]
        if width != self.n_observed:
            raise DataError(
                f"{where}: an observation must have {self.n_observed} numbers, as in training; these have {width}. "
                "Give episodes of the same environment."
            )
        ours, theirs = (
            f"one of {len(self.entries)} by number" if discrete else f"{n} numbers"
            for discrete, n in (
                (bool(self.entries), self.n_acted),
                (episodes.discrete, 1 if episodes.discrete else episodes.actions.shape[1]),
            )
        )
        if bool(self.entries) != episodes.discrete or ours != theirs:
            raise DataError(
                f"{where}: an action must be {ours}, as in training; these are {theirs}. Give episodes of the same "
                "environment."
            )
        if self.entries and (largest := int(episodes.actions.max())) >= len(self.entries):
            raise DataError(
                f"{where}: actions must be below {len(self.entries)}, as in training; one is {largest}. Remove its "
                "episode, or train on such episodes."
            )

    def to_json(self) -> str:
        """All of it as JSON text."""
        record = {"kind": self.kind, "specials": SPECIALS, "entries": self.entries, "scales": asdict(self.scales)}
        return json.dumps(record, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Spaces:
        """Read what `to_json` wrote. Errors: `DataError` for anything else."""
        record = read_json(text)
        scales, entries = record.get("scales"), record.get("entries")
        known = {each.name for each in fields(Scales)}
        if not isinstance(scales, dict) or scales.keys() != known or not isinstance(entries, list):
            raise DataError(
                f"A file of spaces must hold the scales {', '.join(sorted(known))}, and entries. {THE_FILE}"
            )
        values = cast("dict[str, object]", scales)
        if not all(finite(each) for each in values.values()):
            raise DataError(f"A file of spaces must hold finite numbers; got {values!r:.80}. {THE_FILE}")
        made = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
        return cls(Scales(**made), tuple(map(str, entries)))  # pyright: ignore[reportArgumentType]


def finite(value: object) -> bool:
    """Whether a value is a finite number, or a list of such."""
    if isinstance(value, list):
        return all(map(finite, cast("list[object]", value)))
    return isinstance(value, int | float) and math.isfinite(value)
