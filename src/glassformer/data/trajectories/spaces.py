"""What a model of trajectories reads and writes: how many numbers, on which scale, and which actions there are."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, cast

from glassformer.base.errors import DataError
from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, read_json
from glassformer.data.tokens.words import Labels

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
    """The lowest, the mean and the highest return of an episode, discounted as the returns-to-go are."""


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

    def reaching(self, other: Scales) -> Spaces:
        """The same scales of what is read, but for episodes with the actions, lengths and returns of `other`."""
        reach = {name: getattr(other, name) for name in ("acted_low", "acted_high", "longest", "returns")}
        return Spaces(replace(self.scales, **reach), self.entries)

    def check(self, episodes: Episodes, where: str) -> None:
        """Refuse episodes of another environment. Errors: `DataError` naming `where` they come from."""
        width = episodes.observations.shape[1]
        if width != self.n_observed:
            raise DataError(
                f"{where}: an observation must have {self.n_observed} numbers, as in training; these have {width}. "
                "Give episodes of the same environment."
            )
        ours, theirs = (
            "one of some, by number" if n is None else f"{n} numbers"
            for n in (
                None if self.entries else self.n_acted,
                None if episodes.discrete else episodes.actions.shape[1],
            )
        )
        if ours != theirs:
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
        entries, scales = cls.entries_in(record), scales_in(record.get("scales"))
        if bool(entries) == bool(scales.acted):
            raise DataError(
                f"A file of spaces must hold the names of actions (entries) or the scales of their numbers (acted), "
                f"and not both; got {len(entries)} names and the scales of {len(scales.acted)} numbers. {THE_FILE}"
            )
        return cls(scales, tuple(entries))


def scales_in(found: object) -> Scales:
    """The scales in a file. Errors: `DataError` for what cannot be those of episodes."""
    names = [each.name for each in fields(Scales)]
    if not isinstance(found, dict) or {*cast("dict[str, object]", found)} != {*names}:
        raise DataError(f"A file of spaces must hold the scales {', '.join(names)}, and no others. {THE_FILE}")
    record = cast("dict[str, object]", found)
    for name in names:
        value = record[name]
        alone = name in ("to_go", "longest")
        numbers = [value] if alone else cast("list[object]", value) if isinstance(value, list) else [None]
        least = 0 if name.endswith("_spread") or alone else -math.inf
        if not all(finite(each) and cast("float", each) > least for each in numbers):
            raise DataError(
                f"{name} of a file of spaces must be {'a finite number' if alone else 'a list of finite numbers'}"
                f"{'' if least else ' above 0'}; got {value!r:.80}. {THE_FILE}"
            )
    n = {name: len(cast("list[float]", record[name])) for name in names if isinstance(record[name], list)}
    acted = {size for name, size in n.items() if name.startswith("acted")}
    if not n["observed"] or n["observed"] != n["observed_spread"] or len(acted) > 1 or n["returns"] != 3:
        raise DataError(
            f"A file of spaces must hold as many numbers under observed as under observed_spread, at least one, as "
            f"many under each of acted, acted_spread, acted_low and acted_high, and three returns; got {n}. {THE_FILE}"
        )
    if not isinstance(record["longest"], int):
        raise DataError(f"longest of a file of spaces must be whole; got {record['longest']!r}. {THE_FILE}")
    made = {name: tuple(map(float, each)) if isinstance(each, list) else each for name, each in record.items()}
    return Scales(**made | {"to_go": float(cast("float", record["to_go"]))})  # pyright: ignore[reportArgumentType]


def finite(value: object) -> bool:
    """Whether a value is a number, and not too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
