"""A run on trajectories under examination, with windows of episodes in place of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from glassformer.base.errors import GlassformerError
from glassformer.data.batch import Batch
from glassformer.data.dataset import Tokenizers
from glassformer.data.trajectories.episodes import Episodes
from glassformer.data.trajectories.spaces import Spaces
from glassformer.data.trajectories.windows import windows_batch
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import Case
from glassformer.proof.doctor.finding import Probe, Seen
from glassformer.proof.doctor.texts import CHANGED, UNREADABLE
from glassformer.store.checkpoint import Loaded
from glassformer.train.pairs_data import PairsSplit
from glassformer.train.trajectory_data import (
    TrajectorySplit,
    prepare_trajectories,
    prepare_trajectory_split,
    windows_of,
)

STEPS = 6
"""The most steps of a probing window. More would only take longer."""


class TrajectoryCase(Case):
    """One run on trajectories. Features are float64, as the model is."""

    called = "windows"

    def episodes(self, name: str) -> TrajectorySplit:
        """Return the episodes of a split. Errors: `NotTestedError` if they are missing or unreadable."""
        self._refuse_missing("train")
        self._refuse_missing(name)
        try:
            return prepare_trajectory_split(self.recipe, self.tokenizers, name)
        except GlassformerError as error:
            raise NotTestedError(f"the {name} episodes cannot be read: {error}") from None

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The spaces of the checkpoint; without a checkpoint, those of the training episodes."""
        if isinstance(self.loaded, Loaded):
            return self.loaded.tokenizers
        self._refuse_missing("train")
        return prepare_trajectories(self.recipe).tokenizers

    @property
    def spaces(self) -> Spaces:
        """What the model reads and does."""
        assert isinstance(self.tokenizers.target, Spaces)
        return self.tokenizers.target

    def split(self, name: str) -> PairsSplit:
        """Raise `NotTestedError`: episodes are no pairs."""
        raise NotTestedError("episodes are no pairs")

    def made(self, lengths: Sequence[tuple[int, int]], seed: int = 0) -> Batch:
        """Return a batch of made-up windows with so many steps, shortened to what the run reads at once."""
        draw, spaces, scales = np.random.default_rng(seed), self.spaces, self.spaces.scales
        steps = np.array([min(wide, STEPS, self.recipe.data.window) for _, wide in lengths], np.int64)
        edges = np.concatenate([[0], steps.cumsum()]).astype(np.int64)
        N, S, A = int(edges[-1]), spaces.n_observed, spaces.n_acted
        observed = draw.normal(size=(N, S)) * np.array(scales.observed_spread) + np.array(scales.observed)
        acted = draw.integers(A, size=N) if spaces.entries else draw.normal(size=(N, A)).astype(np.float32)
        episodes = Episodes(observed.astype(np.float32), acted, draw.normal(size=N), edges)
        return wide_batch(windows_batch(spaces, episodes, episodes.returns_to_go(), edges[:-1], steps))

    def real(self, n: int) -> Batch:
        """Return the first `n` windows of the training episodes, shortened to fit; made-up ones without data."""
        try:
            found = self.episodes("train")
        except NotTestedError:
            return self.made([(3 + i % 6, 3 + i % 5) for i in range(n)])
        firsts, lengths = windows_of(found.episodes, min(STEPS, self.recipe.data.window))
        return wide_batch(found.batch((firsts[:n], lengths[:n])))


def wide_batch(batch: Batch) -> Batch:
    """Return the batch with features in float64."""
    return replace(batch, tokens=batch.tokens.double())


def readable(case: Case) -> Iterator[Seen]:
    """Read the episodes that the recipe names, and check that they are those used in training."""
    assert isinstance(case, TrajectoryCase)
    told, changed = list[str](), list[str]()
    saved = case.loaded.state.get("data") if isinstance(case.loaded, Loaded) else None
    for name in ("train", "dev"):
        try:
            split = case.episodes(name)
        except NotTestedError as reason:
            if "cannot be read" not in str(reason):
                raise
            yield Seen(str(reason), UNREADABLE)
            return
        told.append(f"{len(split.episodes):,} {name} episodes of {split.source.name}")
        if isinstance(saved, dict) and saved.get(name) != split.digest():
            changed.append(name)
    if changed:
        yield Seen(f"the digest of {' and '.join(changed)} has changed; {', '.join(told)} now", CHANGED)
    else:
        yield Seen(", ".join(told) + (", with the same digests as in training" if isinstance(saved, dict) else ""))


LEFT_OUT = ("labels", "padding-in-loss", "pooling")
"""Probes of the model that windows of episodes have nothing for."""
PROBES = (Probe("data", "The episodes can be read and are those used in training.", readable),)
