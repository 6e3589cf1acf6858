"""Trajectories: episodes of observations, actions and rewards, of which the actions are learned. Imports no torch."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, some
from glassformer.data.dataset import Tokenizers
from glassformer.data.growth import Growth
from glassformer.data.kinds import PLACES, TRAJECTORIES
from glassformer.train.records import Metric
from glassformer.train.run_data import Scored, Split, Summary, WindowData
from glassformer.train.tasks.task import ROLLOUT, Cut, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.trajectories.episodes import Episodes, Spaces
    from glassformer.data.trajectories.rooms import Source
    from glassformer.data.trajectories.windows import Windows
    from glassformer.nn.config import ModelConfig
    from glassformer.train.evaluate import Scoring
    from glassformer.train.settings import Settings

FULL = Growth()


class Trajectories(Task):
    """A Decision Transformer."""

    does, verb = "acts in an environment", ROLLOUT.name
    uses = frozenset({ROLLOUT})
    joins = False
    cut = Cut("file", "train", "dev", ("dev_share", "dev"), "test")

    # --- settings

    def check(self, recipe: Settings) -> None:
        data, model, training = recipe.data, recipe.model, recipe.training
        least = PLACES * data.window
        self.refuse_tokenizer(recipe, "Episodes")
        if training.metric != "loss":
            raise ConfigError(
                f"With data.task={TRAJECTORIES!r}, training.metric must be loss; got {training.metric!r}. Try "
                "training.metric='loss'."
            )
        if training.pool is not None or training.growth.length_steps:
            name, value = (
                ("pool", training.pool) if training.pool is not None else ("length_warmup", training.length_warmup)
            )
            raise ConfigError(
                f"Windows of episodes are drawn one by one, whatever their length; got training.{name}={value}. Remove "
                f"training.{name}."
            )
        if training.batch_tokens < least:
            raise ConfigError(
                f"A batch must have room for one window, which takes {least} places with data.window={data.window} "
                f"(each step takes {PLACES}: return-to-go, observation and action); got training.batch_tokens="
                f"{training.batch_tokens}. Set it to at least {least}, or use a shorter window."
            )
        if model.max_len is not None and model.max_len < least:
            raise ConfigError(
                f"A model must be able to read a whole window, which takes {least} places with "
                f"data.window={data.window}; got model.max_len={model.max_len}. Set model.max_len to "
                f"at least {least}, or use a shorter window."
            )

    # --- data and model

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> TrajectoryData:
        """Read the training and the dev episodes.

        The spaces are those of the training episodes. Given ones keep the scale of what is read, as weights were
        learned with it; their bounds of actions, their longest episode and their returns become those of the training
        episodes.

        Errors: those of reading, `DataError` for episodes of another environment than the given scales', and
        `ConfigError` for label smoothing of actions that are vectors.
        """
        from glassformer.data.trajectories.rooms import action_names, read_split
        from glassformer.data.trajectories.windows import spaces_of

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
        made, train = Tokenizers(spaces, spaces), TrajectorySplit(source, spaces, to_go)
        return TrajectoryData(recipe, made, self.split(recipe, made, "dev"), train)

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> TrajectorySplit:
        """The episodes of a split. Errors: those of reading; `DataError` for episodes of another environment."""
        from glassformer.data.trajectories.rooms import read_split

        spaces = spaces_in(tokenizers)
        assert spaces is not None
        source = read_split(recipe.data, name, recipe.training.seed)
        spaces.check(source.episodes, source.name)
        return TrajectorySplit(source, spaces, source.episodes.returns_to_go(recipe.data.discount))

    def config(self, recipe: Settings, tokenizers: Tokenizers) -> ModelConfig:
        """What is read are numbers; actions are numbered, or numbers themselves."""
        spaces = spaces_in(tokenizers)
        assert spaces is not None
        labels, numbers = (len(spaces.entries), None) if spaces.entries else (None, spaces.n_acted)
        return recipe.model.build(self.layout, None, n_labels=labels, n_features=spaces.n_features, n_numbers=numbers)

    # --- the use of a run

    def next_command(self, run: Path) -> str:
        if self.data.environment is not None:
            return f"Let it act: glassformer rollout {shlex.quote(str(run))}"
        return super().next_command(run)


def spaces_in(tokenizers: Tokenizers | None) -> Spaces | None:
    """The spaces of a run on trajectories, if these are those."""
    from glassformer.data.trajectories.episodes import Spaces

    return tokenizers.target if tokenizers is not None and isinstance(tokenizers.target, Spaces) else None


# The data of a run: episodes, and windows of them.


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
        return self.episodes.digest()

    def batch(self, windows: Windows) -> Batch:
        """The batch of these windows."""
        from glassformer.data.trajectories.windows import windows_batch

        return windows_batch(self.spaces, self.episodes, self.to_go, *windows)

    def score(self, scoring: Scoring) -> Scored:
        """Score the action of each step once, in windows one after the other; there are no samples."""
        from glassformer.data.trajectories.windows import windows_of

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
        return PLACES * self.recipe.data.window

    @property
    def whole(self) -> int:
        return -(-self.train.episodes.n_steps // self.recipe.data.window)

    def batch_of(self, step: int) -> Batch:
        return self.train.batch(self._drawn(step, self.recipe.training.growth))

    def named_batch(self, step: int, most: int = 8) -> str:
        firsts, _ = self._drawn(step - 1, self.recipe.training.growth)
        numbers = sorted({*self.train.episodes.edges.searchsorted(firsts, side="right").tolist()})
        shown = some([f"{each:,}" for each in numbers], most)
        return (
            f"Its batch, in epoch {self.epoch(step - 1)}, is made of windows of the training episodes {shown} of "
            f"{self.train.source.name}."
        )

    def extremes(self) -> list[Batch]:
        return [self._longest(1, self.recipe.data.window), self._longest(1, 1)]

    def largest(self) -> list[Batch]:
        """A batch of windows of the greatest length; none is larger."""
        return [self._longest(self.rows, self.recipe.data.window)]

    def summary(self) -> Summary:
        from glassformer.data.trajectories.windows import windows_of

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
        changed = self.train if split == "train" else self.dev
        return f"the {'training' if split == 'train' else split} episodes ({changed.source.name})"

    def settings(self, split: str) -> list[str]:
        """The setting of the split's file; if dev is the end of the training file, that of the training file."""
        own = split == "train" or self.recipe.data.dev is not None or self.recipe.data.train is None
        return [f"data.{split if own else 'train'}"]

    def _drawn(self, step: int, growth: Growth) -> Windows:
        """The windows of an update."""
        from glassformer.data.trajectories.windows import drawn_windows

        seed = (self.recipe.training.seed, step)
        return drawn_windows(self.train.episodes, self.recipe.data.window, self.rows_at(step, growth), seed)

    def _longest(self, rows: int, window: int) -> Batch:
        """So many copies of the longest window of at most so many steps."""
        from glassformer.data.trajectories.windows import longest_windows

        return self.train.batch(longest_windows(self.train.episodes, window, rows))


def description(split: TrajectorySplit) -> str:
    """The size of a split and its returns, for the user."""
    returns = split.episodes.returns
    return (
        f"{len(split.episodes):,} episodes ({split.episodes.n_steps:,} steps, returns from {returns.min():.1f} to "
        f"{returns.max():.1f}, mean {returns.mean():.1f}) of {split.source.name}"
    )


# --- figures


def action_scores(
    scoring: Scoring, spaces: Spaces, lengths: NDArray[np.int64], batch_of: Callable[[list[int]], Batch]
) -> dict[str, Metric]:
    """Return the scores of windows of these lengths, of which `batch_of` makes batches.

    - `loss`: of numbered actions, nats an action; of vectors, the squared error of a standardised number.
    - `accuracy`, of numbered actions: the share of steps whose action got the highest score.
    - `error`, of vectors: the mean distance of a number from the one in the data, in the data's unit.
    - `n`: steps.
    """
    import torch

    from glassformer.nn.heads import SequenceHead
    from glassformer.nn.observe import Evaluation
    from glassformer.train.loss import hidden, loss_in_places, picked
    from glassformer.train.ranks.team import sum_of_batches

    model, ranks = scoring.model, scoring.ranks
    with Evaluation(model), torch.no_grad():
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
