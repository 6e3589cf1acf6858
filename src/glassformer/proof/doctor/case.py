"""The run under examination: its trained model, its untrained model, its data, and small batches for probes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from glassformer.base.errors import CheckpointError, GlassformerError
from glassformer.base.shapes import Float, Tensor
from glassformer.data.batch import Batch, pad
from glassformer.data.dataset import Tokenizers
from glassformer.data.running.text import Part, read_parts
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.data.trajectories.episodes import Episodes, Spaces
from glassformer.data.trajectories.windows import windows_batch, windows_of
from glassformer.nn.block import Block
from glassformer.nn.heads import SequenceHead
from glassformer.nn.stack import Stack
from glassformer.nn.transformer import Transformer
from glassformer.proof.check.property import NotTestedError
from glassformer.store.checkpoint import Loaded, load
from glassformer.train.objective import Objective
from glassformer.train.recipe import Recipe
from glassformer.train.run.beginning import as_recipe, new_model, objective_of, refuse_changed
from glassformer.train.tasks import task_of
from glassformer.train.tasks.pairs import Pairs as PairsTask
from glassformer.train.tasks.pairs import PairsSplit
from glassformer.train.tasks.task import ROLLOUT
from glassformer.train.tasks.text import Text, TextSplit
from glassformer.train.tasks.trajectories import TrajectorySplit
from glassformer.train.text_score import reader_of

Pairs = list[tuple[list[int], list[int]]]
"""(source, target) as ids, without special tokens."""

LONGEST = 12
"""The most tokens on each side of a probing batch. More would only take longer."""


class Case:
    """One run. Everything is loaded on first use; what cannot be loaded raises `NotTestedError` with the reason.

    Everything runs on the CPU and, except for learning, in float64, so that equal means equal.
    """

    called = "pairs"
    """What a row of a batch is called."""

    def __init__(self, run: Path, recipe: Recipe) -> None:
        self.run, self.recipe = run, recipe
        self.task = task_of(recipe.data)
        self.layout = self.task.layout
        self._splits: dict[str, PairsSplit | str] = {}

    @property
    def pairs(self) -> PairsTask:
        """The task of a run on pairs."""
        return cast("PairsTask", self.task)

    def target_length(self, source: int, wide: int) -> int:
        """How many tokens a target has, of at most `wide`, if its source has `source`."""
        return self.pairs.target_length(source, wide)

    # --- the model

    @cached_property
    def loaded(self) -> Loaded | CheckpointError:
        """The best checkpoint, or the error if there is none."""
        try:
            return load(self.run)
        except CheckpointError as error:
            return error

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers (or spaces) of the checkpoint; without a checkpoint, made of the training data.

        Errors: as `split`.
        """
        if isinstance(self.loaded, Loaded):
            return self.loaded.tokenizers
        self._refuse_missing("train")
        return self.task.learned(self.recipe)

    @cached_property
    def model(self) -> Transformer:
        """The trained model, or the untrained one if no checkpoint can be read; in evaluation mode.

        Errors: `CheckpointError` if the recipe was changed and describes another model.
        """
        if isinstance(self.loaded, Loaded):
            refuse_changed(self.run, self.loaded, self.recipe)
            return as_recipe(self.loaded.model, self.recipe).double().eval()
        return self.fresh

    @cached_property
    def fresh(self) -> Transformer:
        """The model before the first step, in evaluation mode."""
        return self.untrained()

    def untrained(self) -> Transformer:
        """Return a new model, in float64 and evaluation mode, that the caller may change.

        Branches that start at 0 because the recipe says so get small weights: until they learn, nothing passes them.
        """
        model = self.begin().double().eval()
        for stack in (model.encoder, model.decoder) if self.recipe.model.init == "zero" else ():
            for block in () if stack is None else stack.blocks:
                assert isinstance(block, Block)
                for writer in block.writers:
                    nn.init.normal_(writer.weight, std=0.02)
        return model

    def begin(self) -> Transformer:
        """Return a new model that the caller may change, built as training builds it."""
        return new_model(self.recipe, self.tokenizers)

    @cached_property
    def objective(self) -> Objective:
        """The objective of the run."""
        return objective_of(self.model, self.recipe)

    # --- the data

    def split(self, name: str) -> PairsSplit:
        """Return a split, read and encoded. Errors: `NotTestedError` if its files are missing or unreadable."""
        if name not in self._splits:
            self._splits[name] = self._read(name)
        found = self._splits[name]
        if isinstance(found, str):
            raise NotTestedError(found)
        return found

    def _read(self, name: str) -> PairsSplit | str:
        try:
            self._refuse_missing(name)
            return self.pairs.read(self.recipe, self.tokenizers, name)
        except GlassformerError as error:
            return f"the {name} pairs cannot be read: {error}"

    def _refuse_missing(self, name: str) -> None:
        files = [file for file in self.recipe.data.files(name) if file is not None]
        if not files and self.task.reads_files:
            raise NotTestedError(f"the recipe names no {name} file")
        gone = [file for file in files if not Path(file).exists()]
        if gone:
            raise NotTestedError(f"the data are gone: there is no {gone[0]}")

    # --- batches to probe with

    @property
    def ids(self) -> tuple[range, range]:
        """The ordinary ids of source and target."""
        source, target = self.tokenizers
        return range(len(SPECIALS), source.vocab_size), range(len(SPECIALS), target.vocab_size)

    @property
    def room(self) -> int:
        """How many tokens a side of a probing batch may have, without special tokens."""
        limit = self.model.config.stack.max_len
        if limit is None:
            return LONGEST
        return max((n for n in range(1, LONGEST + 1) if max(self.pairs.places(n, n)) <= limit), default=1)

    def made(self, lengths: Sequence[tuple[int, int]], seed: int = 0) -> Batch:
        """Return a batch of random tokens with these lengths, shortened to what the model accepts."""
        draw = random.Random(seed)
        source, target = self.ids
        pairs: Pairs = []
        for long, wide in lengths:
            read = [draw.choice(source) for _ in range(min(long, self.room))]
            many = self.target_length(len(read), min(wide, self.room))
            pairs.append((read, [draw.choice(target) for _ in range(many)]))
        return self.batch(pairs)

    def batch(self, pairs: Pairs) -> Batch:
        """Return a batch of these pairs in the layout of the run."""
        return self.pairs.of_ids(pairs, self.tokenizers)

    def real(self, n: int) -> Batch:
        """Return a batch of the first `n` rows of the training data, shortened to fit; made-up rows without data."""
        try:
            return self.first(n)
        except NotTestedError:
            return self.made([(3 + i % 6, 3 + i % 5) for i in range(n)])

    def first(self, n: int) -> Batch:
        """Return the first `n` training pairs with distinct sources, truncated to `room`. Errors: as `split`."""
        return self.pairs.shortened(self.split("train").encoded, self.tokenizers, n, self.room)


def logits(model: Transformer, batch: Batch) -> Float[Tensor, "B *T V"]:
    """Return the model's output for everything in the batch."""
    return model(batch.tokens, keep=batch.keep, source=batch.source, source_keep=batch.source_keep)


def hidden(model: Transformer, batch: Batch) -> Float[Tensor, "B T D"]:
    """Return the vectors before the head."""
    return model.hidden(batch.tokens, keep=batch.keep, source=batch.source, source_keep=batch.source_keep)


def stack_of(model: Transformer, name: str) -> Stack:
    """Return the stack that contains the module of this name."""
    stack = model.get_submodule(name.partition(".")[0])
    assert isinstance(stack, Stack)
    return stack


def answers_once(model: Transformer) -> bool:
    """Whether the head gives one answer per sequence."""
    return isinstance(model.head, SequenceHead)


# --- a run on trajectories, with windows of episodes in place of pairs

STEPS = 6
"""The most steps of a probing window. More would only take longer."""


class TrajectoryCase(Case):
    """One run on trajectories. Features are float64, as the model is."""

    called = "windows"

    def episodes(self, name: str) -> TrajectorySplit:
        """Return the episodes of a split. Errors: `NotTestedError` if they are missing or unreadable."""
        self._refuse_missing("train")
        self._refuse_missing(name)
        data = self.recipe.data
        if name == "test" and data.train is not None and data.test is None:
            raise NotTestedError("the recipe names no test file")
        try:
            found = self.task.split(self.recipe, self.tokenizers, name)
        except GlassformerError as error:
            raise NotTestedError(f"the {name} episodes cannot be read: {error}") from None
        assert isinstance(found, TrajectorySplit)
        return found

    @property
    def spaces(self) -> Spaces:
        """What the model reads and does."""
        assert isinstance(self.tokenizers.target, Spaces)
        return self.tokenizers.target

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

    def first(self, n: int) -> Batch:
        """Return the first `n` windows of the training episodes, shortened to fit. Errors: as `episodes`."""
        found = self.episodes("train")
        firsts, lengths = windows_of(found.episodes, min(STEPS, self.recipe.data.window))
        return wide_batch(found.batch((firsts[:n], lengths[:n])))


def wide_batch(batch: Batch) -> Batch:
    """Return the batch with features in float64."""
    return replace(batch, tokens=batch.tokens.double())


# --- a run on running text, with windows in place of pairs


def case_of(run: Path, recipe: Recipe) -> Case:
    """Return the case of a run on any kind of data."""
    task = task_of(recipe.data)
    kind = TrajectoryCase if ROLLOUT in task.uses else Case if task.window is None else TextCase
    return kind(run, recipe)


class TextCase(Case):
    """One run on running text."""

    called = "windows"

    def part(self, name: str) -> Part:
        """Return the text of a split. Errors: `NotTestedError` if it is missing or unreadable."""
        self._refuse_missing(name)
        try:
            parts = read_parts(self.recipe.data, (name,))
        except GlassformerError as error:
            raise NotTestedError(f"the {name} text cannot be read: {error}") from None
        if name not in parts:
            raise NotTestedError(f"the recipe names no {name} text")
        return parts[name]

    def text(self, name: str) -> TextSplit:
        """Return the tokens of a split. Errors: as `part`."""
        part = self.part(name)
        try:
            return cast("Text", self.task).read(self.recipe, self.tokenizers, part)
        except GlassformerError as error:
            raise NotTestedError(f"the {name} text cannot be read: {error}") from None

    def _refuse_missing(self, name: str) -> None:
        for path in (each for split in ("train", name) for each in self.recipe.data.named_files(split)):
            if not Path(path).exists():
                raise NotTestedError(f"the data are gone: there is no {path}")

    def target_length(self, source: int, wide: int) -> int:
        """As many as are hidden, or any number."""
        return source if self.layout.blanks else wide

    @property
    def room(self) -> int:
        """How many tokens a side may have.

        Source, target and a mark share the model's length if one stack reads them all.
        """
        limit = self.model.config.stack.max_len
        sides = 1 if self.layout.encoder and self.layout.decoder else 2
        return LONGEST if limit is None else max(1, min(LONGEST, (limit - 2) // sides))

    def batch(self, pairs: Pairs) -> Batch:
        """For a decoder, put <bos>, source and target in one row; otherwise batch them as for pairs."""
        if not self.layout.encoder:
            return Batch(*pad([[BOS, *source, *target] for source, target in pairs]))
        build = Batch.blanks if self.layout.blanks else Batch.pairs
        return build([source for source, _ in pairs], [target for _, target in pairs])

    def first(self, n: int) -> Batch:
        """Return the first `n` windows of the training text, shortened to fit. Errors: as `text`."""
        tokens = self.text("train").tokens
        length = min(self.recipe.data.window, 2 * self.room, (len(tokens) - 1) // 2)
        starts = np.arange(min(n, (len(tokens) - 1) // length)) * length
        return reader_of(self.recipe.data, self.tokenizers.target, self.recipe.training.seed).batch(
            tokens, starts, length
        )
