"""A run on running text under examination, with windows in place of pairs."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from glassformer.base.errors import GlassformerError
from glassformer.data.batch import Batch
from glassformer.data.dataset import Tokenizers
from glassformer.data.rows import pad
from glassformer.data.running.corpus import Part, read_parts
from glassformer.data.tokens.vocabulary import BOS
from glassformer.proof.check.property import NotTestedError
from glassformer.proof.doctor.case import LONGEST, Case, Pairs
from glassformer.proof.doctor.trajectory_case import TrajectoryCase
from glassformer.store.checkpoint import Loaded
from glassformer.train.pairs_data import PairsSplit
from glassformer.train.recipe import Recipe
from glassformer.train.tasks import Task, task_of
from glassformer.train.tasks.text import Text
from glassformer.train.tasks.trajectories import Trajectories
from glassformer.train.text_data import TextSplit, text_split, text_tokenizers
from glassformer.train.text_score import reader_of


def case_of(run: Path, recipe: Recipe) -> Case:
    """Return the case of a run on any kind of data."""
    kinds: dict[type[Task], type[Case]] = {Text: TextCase, Trajectories: TrajectoryCase}
    return kinds.get(type(task_of(recipe.data)), Case)(run, recipe)


class TextCase(Case):
    """One run on running text."""

    called = "windows"

    def part(self, name: str) -> Part:
        """Return the text of a split. Errors: `NotTestedError` if it is missing or unreadable."""
        for path in (each for split in ("train", name) for each in self.recipe.data.named_files(split)):
            if not Path(path).exists():
                raise NotTestedError(f"the data are gone: there is no {path}")
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
            return text_split(self.recipe, self.tokenizers.target, part)
        except GlassformerError as error:
            raise NotTestedError(f"the {name} text cannot be read: {error}") from None

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of the checkpoint; without a checkpoint, built from the training text as training does."""
        if isinstance(self.loaded, Loaded):
            return self.loaded.tokenizers
        return text_tokenizers(self.recipe, self.part("train"))

    def split(self, name: str) -> PairsSplit:
        """Raise `NotTestedError`: running text has no pairs."""
        raise NotTestedError("running text has no pairs")

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

    def real(self, n: int) -> Batch:
        """Return the first `n` windows of the training text, shortened to fit; random rows without data."""
        try:
            tokens = self.text("train").tokens
        except NotTestedError:
            return self.made([(3 + i % 6, 3 + i % 5) for i in range(n)])
        length = min(self.recipe.data.window, 2 * self.room, (len(tokens) - 1) // 2)
        starts = np.arange(min(n, (len(tokens) - 1) // length)) * length
        return reader_of(self.recipe.data, self.tokenizers.target, self.recipe.training.seed).batch(
            tokens, starts, length
        )
