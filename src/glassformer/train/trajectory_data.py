"""The data of a run on trajectories: episodes, and windows of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, some
from glassformer.data.batch import Batch
from glassformer.data.dataset import Tokenizers
from glassformer.data.growth import Growth
from glassformer.data.kinds import PLACES
from glassformer.data.trajectories.episodes import Episodes, Spaces
from glassformer.data.trajectories.rooms import Source, action_names, read_split
from glassformer.data.trajectories.windows import spaces_of, windows_batch
from glassformer.nn.heads import SequenceHead
from glassformer.nn.observe import Evaluation
from glassformer.train.evaluate import Scoring
from glassformer.train.loss import hidden, loss_in_places, picked
from glassformer.train.ranks.team import sum_of_batches
from glassformer.train.records import Metric
from glassformer.train.run_data import Scored, Split, Summary, WindowData
from glassformer.train.settings import Settings


@torch.no_grad()
def action_scores(
    scoring: Scoring, spaces: Spaces, lengths: NDArray[np.int64], batch_of: Callable[[list[int]], Batch]
) -> dict[str, Metric]:
    """Return the scores of windows of these lengths, of which `batch_of` makes batches.

    - `loss`: of numbered actions, nats an action; of vectors, the squared error of a standardised number.
    - `accuracy`, of numbered actions: the share of steps whose action got the highest score.
    - `error`, of vectors: the mean distance of a number from the one in the data, in the data's unit.
    - `n`: steps.
    """
    model, ranks = scoring.model, scoring.ranks
    with Evaluation(model):
        device, head = scoring.device, model.head
        assert not isinstance(head, SequenceHead), "of an episode every step is asked for"
        spread = torch.tensor(spaces.scales.acted_spread, device=device)
        own: list[tuple[float, int, float]] = []
        for _, batch in scoring.batches(lengths, batch_of):
            there = batch.to(device)
            targets = scoring.objective(there)
            vectors, wanted = picked(hidden(model, there, targets), targets)
            given = head(vectors)[: len(wanted)]
            off = (given.argmax(-1) == wanted).sum() if spaces.entries else ((given - wanted).abs() * spread).sum()
            own.append((loss_in_places(head, vectors, wanted, 0.0).nll.item(), wanted.numel(), off.item()))
        total, n, off = (sum_of_batches([each[which] for each in own], ranks) for which in range(3))
        return {"loss": total / n, "accuracy" if spaces.entries else "error": off / n, "n": int(lengths.sum())}


FULL = Growth()
Windows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The first step of each window, and its number of steps."""


@dataclass(frozen=True)
class TrajectorySplit(Split):
    """The episodes of one split."""

    source: Source
    spaces: Spaces
    to_go: NDArray[np.float64]
    skipped: int = 0

    @property
    def episodes(self) -> Episodes:
        """The episodes themselves."""
        return self.source.episodes

    def digest(self) -> str:
        """SHA-256 of all that was observed, done and earned, and of where episodes end."""
        digest, own = hashlib.sha256(), self.episodes
        for array in (own.observations, own.actions, own.rewards, own.edges):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def batch(self, windows: Windows) -> Batch:
        """The batch of these windows."""
        return windows_batch(self.spaces, self.episodes, self.to_go, *windows)

    def score(self, scoring: Scoring) -> Scored:
        """Score the action of each step once, in windows one after the other; there are no samples."""
        firsts, lengths = windows_of(self.episodes, scoring.recipe.data.window)
        made = action_scores(scoring, self.spaces, lengths, lambda rows: self.batch((firsts[rows], lengths[rows])))
        return Scored(made, [])


@dataclass(frozen=True)
class TrajectoryData(WindowData):
    """The data of a run on trajectories."""

    what = "episodes"
    dev: TrajectorySplit
    train: TrajectorySplit

    @property
    def places(self) -> int:
        """Each step takes several."""
        return PLACES * self.recipe.data.window

    @property
    def whole(self) -> int:
        """By the steps of the training episodes."""
        return -(-self.train.episodes.n_steps // self.recipe.data.window)

    def batch_of(self, step: int) -> Batch:
        """The batch after `step` steps."""
        return self.train.batch(self._drawn(step, self.recipe.training.growth))

    def named_batch(self, step: int, most: int = 8) -> str:
        """Name the episodes of the batch, counted from 1."""
        firsts, _ = self._drawn(step - 1, self.recipe.training.growth)
        numbers = sorted(set((np.searchsorted(self.train.episodes.edges, firsts, side="right")).tolist()))
        shown = some([f"{each:,}" for each in numbers], most)
        return (
            f"Its batch, in epoch {self.epoch(step - 1)}, is made of windows of the training episodes {shown} of "
            f"{self.train.source.name}."
        )

    def extremes(self) -> list[Batch]:
        """The longest window, and a single step."""
        return [self._longest(1), self.train.batch((np.array([0]), np.array([1])))]

    def largest(self) -> list[Batch]:
        """A batch of windows of the greatest length; none is larger."""
        return [self._longest(self.rows)]

    def summary(self) -> Summary:
        """The windows in figures."""
        first = self.train.batch(self._drawn(0, FULL))
        batches = -(-self.whole // self.rows)
        return Summary(
            what="windows",
            samples=self.whole,
            dev_samples=len(windows_of(self.dev.episodes, self.recipe.data.window)[0]),
            tokens=PLACES * self.train.episodes.n_steps,
            longest=PLACES * min(self.recipe.data.window, int(self.train.episodes.lengths.max())),
            batches=batches,
            padding=first.pad_share,
            epochs=self.epochs,
        )

    def notes(self) -> list[str]:
        """Lines for the user: how many episodes, their returns, what is read and done, and the windows."""
        spaces, recipe = self.train.spaces, self.recipe
        acts = f"{len(spaces.entries)} actions" if spaces.entries else f"actions of {spaces.n_acted} numbers"
        lines = [
            f"data: {description(self.train)} to train on; {description(self.dev)} as dev episodes; observations of "
            f"{spaces.n_observed} numbers, {acts}",
            f"batches: {self.rows:,} windows of at most {recipe.data.window:,} steps ({PLACES} places each); "
            f"{self.epochs:.2f} epochs in the run",
        ]
        lines += self.warmup_notes()
        for split in (self.train, self.dev) if self.train.source.name != self.dev.source.name else (self.train,):
            if split.source.unread:
                lines.append(f"not read: {', '.join(split.source.unread)} in {split.source.name}")
        seen = set(self.train.episodes.fingerprints())
        if known := sum(each in seen for each in self.dev.episodes.fingerprints()):
            lines.append(f"in both: {known:,} of the dev episodes are training episodes, too, and say nothing new")
        return lines

    def differing(self, split: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
        """Name the episodes of a split, which have changed as a whole."""
        changed = self.train if split == "train" else self.dev
        return f"the {'training' if split == 'train' else split} episodes ({changed.source.name})"

    def settings(self, split: str) -> list[str]:
        """The setting of the split's file; if dev is the end of the training file, that of the training file."""
        own = split == "train" or self.recipe.data.dev is not None or self.recipe.data.train is None
        return [f"data.{split if own else 'train'}"]

    def _drawn(self, step: int, growth: Growth) -> Windows:
        """The windows of an update: those that end at steps drawn at random, each as likely as any other.

        Chen et al. 2021, algorithm 1, draw episodes by their length and cut windows out of them. A window at the
        beginning of an episode is shorter. Each depends only on (seed, step, row).
        """
        count = self.rows_at(step, growth)
        # Raw output of Philox: numpy promises it for all versions, which it does not for its integers.
        random = np.random.Philox(np.random.SeedSequence((self.recipe.training.seed, step)))
        episodes = self.train.episodes
        lasts = (random.random_raw(count) % np.uint64(episodes.n_steps)).astype(np.int64)
        lengths = np.minimum(episodes.times[lasts] + 1, self.recipe.data.window)
        return lasts - lengths + 1, lengths

    def _longest(self, rows: int) -> Batch:
        """So many copies of the longest window."""
        lengths = self.train.episodes.lengths
        first, length = self.train.episodes.edges[lengths.argmax()], min(self.recipe.data.window, int(lengths.max()))
        return self.train.batch((np.full(rows, first), np.full(rows, length)))


def description(split: TrajectorySplit) -> str:
    """The size of a split and its returns, for the user."""
    returns = split.episodes.returns
    return (
        f"{len(split.episodes):,} episodes ({split.episodes.n_steps:,} steps, returns from {returns.min():.1f} to "
        f"{returns.max():.1f}, mean {returns.mean():.1f}) of {split.source.name}"
    )


def windows_of(episodes: Episodes, window: int) -> Windows:
    """Windows one after the other, in which each step is once; the last one of an episode may be shorter."""
    firsts = np.concatenate([np.arange(first, last, window) for first, last in pairwise(episodes.edges.tolist())])
    last = np.repeat(episodes.edges[1:], -(-episodes.lengths // window))
    return firsts, np.minimum(last - firsts, window)


def prepare_trajectories(recipe: Settings, tokenizers: Tokenizers | None = None) -> TrajectoryData:
    """Read the training and the dev episodes.

    The spaces are those of the training episodes. Given ones keep the scale of what is read, as weights were learned
    with it; their bounds of actions, their longest episode and their returns become those of the training episodes.

    Errors: those of reading, `DataError` for episodes of another environment than the given scales', and `ConfigError`
    for label smoothing of actions that are vectors.
    """
    source = read_split(recipe.data, "train", recipe.training.seed)
    to_go = source.episodes.returns_to_go(recipe.data.discount)
    given = spaces_in(tokenizers)
    if given is not None:
        given.check(source.episodes, source.name)
    spaces = spaces_of(source.episodes, to_go, action_names(recipe.data))
    spaces = spaces if given is None else given.reaching(spaces.scales)
    if recipe.training.label_smoothing and not spaces.entries:
        raise ConfigError(
            "training.label_smoothing is for numbered actions, but those of "
            f"{source.name} are vectors; got label_smoothing={recipe.training.label_smoothing}. Set it to 0."
        )
    train = TrajectorySplit(source, spaces, to_go)
    dev = split_of(recipe, spaces, "dev")
    return TrajectoryData(recipe, Tokenizers(spaces, spaces), dev, train)


def prepare_trajectory_split(recipe: Settings, tokenizers: Tokenizers, name: str) -> TrajectorySplit:
    """One split for scoring. Errors: those of reading; `DataError` for episodes of another environment."""
    spaces = spaces_in(tokenizers)
    assert spaces is not None
    return split_of(recipe, spaces, name)


def split_of(recipe: Settings, spaces: Spaces, name: str) -> TrajectorySplit:
    """Read a split and compare it with the spaces of the model."""
    source = read_split(recipe.data, name, recipe.training.seed)
    spaces.check(source.episodes, source.name)
    return TrajectorySplit(source, spaces, source.episodes.returns_to_go(recipe.data.discount))


def spaces_in(tokenizers: Tokenizers | None) -> Spaces | None:
    """The spaces of a run on trajectories, if these are those."""
    return tokenizers.target if tokenizers is not None and isinstance(tokenizers.target, Spaces) else None
