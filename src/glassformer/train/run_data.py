"""The data of a run, whatever their kind: the interface between training and the kinds of data. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from glassformer.data.growth import Growth
from glassformer.train.records import Metric, Sample
from glassformer.train.sample_lengths import SampleLengths
from glassformer.train.settings import Settings

if TYPE_CHECKING:
    from glassformer.data.batch import Batch
    from glassformer.data.dataset import Tokenizers
    from glassformer.nn.transformer import Transformer
    from glassformer.train.evaluate import Details, Scoring
    from glassformer.train.objective import Objective


class Scored(NamedTuple):
    """An evaluation: its metrics, samples of what the model wrote, and details that need a table."""

    metrics: dict[str, Metric]
    samples: list[Sample]
    details: Details = {}  # noqa: RUF012  (never changed)


class Split(ABC):
    """The encoded data of one split, on which a model is scored."""

    skipped: int
    """Samples that were skipped, as the recipe asks."""

    @abstractmethod
    def score(self, scoring: Scoring) -> Scored:
        """Score a model on the whole split. `metrics` has a `loss` in nats, and `n`, the number it is a mean over.

        There are as many samples as `training.samples` says.
        """

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of what the scores are computed from, whatever the vocabulary."""


@dataclass(frozen=True)
class Summary:
    """The training data and their batches in figures. Tokens are those of source and target."""

    what: str
    """What `samples` counts."""
    samples: int
    dev_samples: int
    tokens: int
    longest: int
    """Tokens of the longest sequence."""
    batches: int
    """Batches of the first epoch."""
    padding: float
    """Share of padding in those batches, 0 to 1."""
    epochs: float
    """How often the whole run sees each sample."""


@dataclass(frozen=True)
class RunData(ABC):
    """The data of a run, as training, resuming and estimating use them."""

    recipe: Settings
    """The recipe, with all that was decided when the data were read."""
    tokenizers: Tokenizers
    dev: Split
    """The split that the best checkpoint is chosen by."""
    train: Split

    @abstractmethod
    def batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        """The epoch and the batch of each step after `start`, endlessly: a pure function of the recipe's seed."""

    @abstractmethod
    def named_batch(self, step: int) -> str:
        """Name what makes up the batch of update `step`, so that a user can find it."""

    @abstractmethod
    def extremes(self) -> list[Batch]:
        """The longest and the shortest training sample, each alone."""

    @abstractmethod
    def largest(self) -> list[Batch]:
        """The batches of the first epoch that may need the most memory."""

    @abstractmethod
    def summary(self) -> Summary:
        """The data in figures."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Lines for the user: how much data, how large the vocabularies, what the batches are."""

    def written(self) -> list[Path]:
        """The files that reading the data has written, where later runs find them."""
        return []

    def lengths(self) -> SampleLengths:
        """The fewest and the most tokens of a training sample, by side; empty where a sample is cut from a text."""
        return {}

    def fingerprints(self) -> dict[str, str]:
        """Two digests: "train", of the data to train on, and "dev", of what the scores are computed from."""
        return {"train": self.train.digest(), "dev": self.dev.digest()}

    @abstractmethod
    def sides(self) -> dict[str, str]:
        """Digests of each file's content: they tell which file has changed."""

    @abstractmethod
    def differing(self, split: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
        """Say what differs in a split, naming the files whose digests, as `sides` gives them, differ."""

    @abstractmethod
    def settings(self, split: str) -> list[str]:
        """The settings that may name the files of a split, such as "data.train"."""

    def scoring(self, model: Transformer, objective: Objective) -> Scoring:
        """What scores the dev split. Nothing is compiled for it, which would take longer than decoding the answers."""
        from glassformer.train.evaluate import Scoring

        recipe = replace(self.recipe, decode=replace(self.recipe.decode, compile=False))
        return Scoring(model, recipe, self.tokenizers, objective)


@dataclass(frozen=True)
class WindowData(RunData):
    """Data of which every batch has as many windows of one length. An epoch is as many as hold the training data."""

    what: ClassVar[str]
    """What a split is made of."""

    @property
    @abstractmethod
    def places(self) -> int:
        """The tokens that a window takes in a batch."""

    @property
    @abstractmethod
    def whole(self) -> int:
        """Windows, of full length, that hold the training data once."""

    @abstractmethod
    def batch_of(self, step: int) -> Batch:
        """The batch after `step` steps."""

    @property
    def rows(self) -> int:
        """Windows in a batch."""
        return self.recipe.training.batch_tokens // self.places

    def rows_at(self, step: int, growth: Growth) -> int:
        """As many of them as a warm-up of the batch allows after `step` steps."""
        return max(1, int(self.rows * growth.share(step + 1)))

    @property
    def epochs(self) -> float:
        """How often the whole run sees the data; a warm-up of batch or length is not subtracted."""
        return self.recipe.training.steps * self.rows / self.whole

    def epoch(self, step: int) -> int:
        """The epoch of a step, counted from 0."""
        return step * self.rows // self.whole

    def batches(self, start: int) -> Iterator[tuple[int, Batch]]:
        for step in count(start):
            yield self.epoch(step), self.batch_of(step)

    def warmup_notes(self) -> list[str]:
        """A line for the user on a warm-up of the batch."""
        growth, training = self.recipe.training.growth, self.recipe.training
        if not growth.batch_steps:
            return []
        few = self.rows_at(0, growth)
        return [f"batch warm-up: over {training.batch_warmup:,} steps from {few:,} windows to {self.rows:,}"]

    def sides(self) -> dict[str, str]:
        return {f"{name} {self.what}": digest for name, digest in self.fingerprints().items()}
