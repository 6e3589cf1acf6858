"""What a run learns from, whatever it is: the seam between training and the kinds of data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from glassformer.data.batch import Batch
from glassformer.data.dataset import Tokenizers
from glassformer.decode.answer import nothing
from glassformer.model.transformer import Transformer
from glassformer.train.objective import Objective
from glassformer.train.ranks.distributed import ALONE, Ranks
from glassformer.train.recipe import Recipe
from glassformer.train.record.events import Metric, Sample
from glassformer.train.score.labels import Details


class Scored(NamedTuple):
    """An evaluation: its figures, examples of what the model wrote, and tables of what a figure cannot tell."""

    metrics: dict[str, Metric]
    samples: list[Sample]
    details: Details = {}  # noqa: RUF012  (never changed)


class Split(ABC):
    """The data of one split, encoded, with which a model is scored."""

    skipped: int
    """Samples that were left out, as the recipe asks."""

    @abstractmethod
    def score(
        self,
        model: Transformer,
        recipe: Recipe,
        tokenizers: Tokenizers,
        objective: Objective,
        poll: Callable[[], None] = nothing,
        ranks: Ranks = ALONE,
    ) -> Scored:
        """How good the model is on all of it. `metrics` has a `loss`, in nats, and `n`, what it is a mean of.

        As many samples as `training.samples` says. `poll` is called all the time; what it raises ends the evaluation.
        Several processes (`ranks`) share the work out and all get the scores of one.
        """

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of what the scores compare, whatever the vocabulary."""


@dataclass(frozen=True)
class Summary:
    """The training data in figures, and how they are cut into batches. Tokens are those of source and target."""

    what: str
    """What `samples` counts."""
    samples: int
    dev_samples: int
    tokens: int
    longest: int
    """Tokens of the longest sequence."""
    batches: int
    """In the first epoch."""
    padding: float
    """Share of the places of its batches that hold none, 0 to 1."""
    epochs: float
    """How often the whole run sees each sample."""


@dataclass(frozen=True)
class RunData(ABC):
    """The data side of a run: what training, resuming and looking ahead ask of it."""

    recipe: Recipe
    """With all that was decided when the data were read."""
    tokenizers: Tokenizers
    dev: Split
    """What the best checkpoint is chosen by."""

    @abstractmethod
    def batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        """The epoch and the batch of each step after `start`, without end: a pure function of the recipe's seed."""

    @abstractmethod
    def named_batch(self, step: int) -> str:
        """A sentence on what makes up the batch of update `step`, so that a user finds it."""

    @abstractmethod
    def extremes(self) -> list[Batch]:
        """The longest and the shortest training sample, each alone."""

    @abstractmethod
    def largest(self) -> list[Batch]:
        """Those batches of the first epoch whose memory may be the largest."""

    @abstractmethod
    def summary(self) -> Summary:
        """The data in figures."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Lines for the user: how much data, how large the vocabularies, what the batches are."""

    def written(self) -> list[Path]:
        """What reading the data has written, where later runs find it."""
        return []

    @abstractmethod
    def fingerprints(self) -> dict[str, str]:
        """A digest of what is trained on, "train", and one of what the scores compare, "dev"."""

    @abstractmethod
    def sides(self) -> dict[str, str]:
        """Digests of the content of each file: they tell which one has changed."""

    @abstractmethod
    def differing(self, split: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
        """What of a split is not as it was, naming the files whose digests, as `sides` gives them, differ."""

    @abstractmethod
    def settings(self, split: str) -> list[str]:
        """The settings that may name the files of a split, as "data.train"."""

    def evaluate(
        self, model: Transformer, objective: Objective, poll: Callable[[], None] = nothing, ranks: Ranks = ALONE
    ) -> Scored:
        """The scores of the dev split. Nothing is compiled for it: that would take longer than the answers."""
        recipe = replace(self.recipe, decode=replace(self.recipe.decode, compile=False))
        return self.dev.score(model, recipe, self.tokenizers, objective, poll, ranks)
