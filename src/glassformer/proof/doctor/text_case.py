"""A run on running text, as it is looked at: the same probes, with windows where others have pairs."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from glassformer.data.batch import Batch
from glassformer.data.config import TEXT
from glassformer.data.dataset import Tokenizers
from glassformer.data.rows import pad
from glassformer.data.running.corpus import Part, read_parts
from glassformer.data.tokens.vocabulary import BOS
from glassformer.foundation.errors import GlassformerError
from glassformer.proof.check.table import NotTestedError
from glassformer.proof.doctor.case import LONGEST, Case, Pairs
from glassformer.store.checkpoint import Loaded
from glassformer.train.recipe import Recipe
from glassformer.train.sources.pairs_data import PairsSplit
from glassformer.train.sources.text_batches import reader_of
from glassformer.train.sources.text_data import TextSplit, text_split, text_tokenizers


def case_of(run: Path, recipe: Recipe) -> Case:
    """A run, whatever it learns from."""
    return (TextCase if recipe.data.task == TEXT else Case)(run, recipe)


class TextCase(Case):
    """One run on running text."""

    called = "windows"

    def part(self, name: str) -> Part:
        """The text of a split. Errors: `NotTestedError` where it is gone or cannot be read."""
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
        """The tokens of a split. Errors: as `part`."""
        part = self.part(name)
        try:
            return text_split(self.recipe, self.tokenizers.target, part)
        except GlassformerError as error:
            raise NotTestedError(f"the {name} text cannot be read: {error}") from None

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """Those of the checkpoint; without one, made of the training text as training makes them."""
        if isinstance(self.loaded, Loaded):
            return self.loaded.tokenizers
        return text_tokenizers(self.recipe, self.part("train"))

    def split(self, name: str) -> PairsSplit:
        """Errors: `NotTestedError`."""
        raise NotTestedError("running text has no pairs")

    @property
    def room(self) -> int:
        """Where one stack reads source, target and a mark in one row, that row is as long as the model takes."""
        limit = self.model.config.stack.max_len
        sides = 1 if self.layout == "encoder-decoder" else 2
        return LONGEST if limit is None else max(1, min(LONGEST, (limit - 2) // sides))

    def batch(self, pairs: Pairs) -> Batch:
        """Of a decoder <bos>, source and target in one row; else as pairs have it."""
        if self.layout == "decoder":
            return Batch(*pad([[BOS, *source, *target] for source, target in pairs]))
        build = Batch.blanks if self.layout == "masked" else Batch.pairs
        return build([source for source, _ in pairs], [target for _, target in pairs])

    def real(self, n: int) -> Batch:
        """The first `n` windows of the training text, cut where they are long; random ones without data."""
        try:
            tokens = self.text("train").tokens
        except NotTestedError:
            return self.made([(3 + i % 6, 3 + i % 5) for i in range(n)])
        length = min(self.recipe.data.window, 2 * self.room, (len(tokens) - 1) // 2)
        starts = np.arange(min(n, (len(tokens) - 1) // length)) * length
        return reader_of(self.recipe.data, self.tokenizers.target, self.recipe.training.seed).batch(
            tokens, starts, length
        )
