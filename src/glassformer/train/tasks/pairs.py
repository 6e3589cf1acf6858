"""Pairs of texts, from files or made: a source is answered with a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.config import EQUAL_LENGTHS, FILES, PAIRS, DataConfig
from glassformer.train.settings import ANSWER_METRICS, LABEL_METRICS, TEXT_METRICS
from glassformer.train.tasks.task import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.dataset import Encoded, Tokenizers
    from glassformer.train.recipe import Recipe
    from glassformer.train.sources.pairs_data import PairsData, PairsSplit

OF_BLANKS = ("batch_size", "precision", "compile", "threads")
"""The settings of [decode] that matter to a model that fills in blanks, all at once."""


class Pairs(Task):
    """Answers, written token by token or, by an encoder alone, in the blanks behind the source."""

    decoded = True
    metrics = (*ANSWER_METRICS, "loss")

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.blanks = self.layout.blanks
        self.does = "fills all blanks at once" if self.blanks else "writes answers"
        self.verb = "translate"
        self.verbs = frozenset({"translate", "explore"} if self.blanks else {"translate", "generate", "explore"})
        self.decode_settings = OF_BLANKS if self.blanks else None

    def check(self, recipe: Recipe) -> None:
        """Refuse metrics of labels, and blanks for answers whose length the source does not tell."""
        metric, task = recipe.training.metric, self.data.task
        if metric in LABEL_METRICS:
            raise ConfigError(
                f"training.metric={metric!r} does not fit data.layout={self.data.layout!r}, which gives answers of "
                "several tokens. Try training.metric='exact_match'."
            )
        if metric in TEXT_METRICS and task != PAIRS:
            raise ConfigError(
                f"training.metric={metric!r} belongs to data.task={PAIRS!r}; got data.task={task!r}, whose answers are "
                "right or wrong. Try training.metric='exact_match'."
            )
        if not self.blanks:
            return
        if task not in EQUAL_LENGTHS:
            raise ConfigError(
                "data.layout='encoder' fills one blank for each token of the source, so answers must be as long as "
                f"their sources, as they are in {', '.join(EQUAL_LENGTHS)}; got data.task={task!r}. "
                "Try data.layout='encoder-decoder'."
            )
        if not recipe.tokenizer.shared:  # one stack reads source and blanks through one embedding
            raise ConfigError(
                "data.layout='encoder' needs one vocabulary for source and target; got tokenizer.shared=False, which "
                "makes two. Try tokenizer.shared=True, or data.layout='encoder-decoder'."
            )

    def prepare(self, recipe: Recipe, tokenizers: Tokenizers | None = None) -> PairsData:
        """Read, encode and plan the pairs."""
        from glassformer.train.sources.pairs_data import prepare_pairs

        return prepare_pairs(recipe, tokenizers)

    def split(self, recipe: Recipe, tokenizers: Tokenizers, name: str) -> PairsSplit:
        """Read and encode the pairs of a split."""
        from glassformer.train.sources.pairs_data import prepare_pairs_split

        return prepare_pairs_split(recipe, tokenizers, name)

    def scores(self, other: DataConfig) -> bool:
        """Files may replace the pairs that a task makes."""
        return other.task in (self.data.task, PAIRS)

    def batch(self, encoded: Encoded, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """The batch of the samples in these rows, in their order."""
        from glassformer.data.batch import collate

        return collate(encoded, rows, self.data.layout)

    def lengths(self, encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many places each sample takes in a batch, on the source side and in `tokens`."""
        return encoded.lengths(self.data.layout)

    def target_length(self, source: int, wide: int) -> int:
        """How many tokens a target may have, of at most `wide`, if its source has `source`."""
        return source if self.blanks else wide

    def read_length(self, n: int) -> int:
        """With the blanks of an encoder alone: as many as source tokens."""
        return 2 * n + 1 if self.blanks else n + 1

    @property
    def marks(self) -> str:
        """What is read besides a source."""
        return "<sep> and as many blanks" if self.blanks else "<eos>"

    @property
    def equal_lengths(self) -> bool:
        """Whether every answer has as many tokens as its source."""
        return self.data.task in EQUAL_LENGTHS

    @property
    def reads_files(self) -> bool:
        """Whether the pairs come from files."""
        return self.data.task in FILES

    @property
    def written(self) -> bool:
        """Whether targets are texts that people wrote, to be scored by BLEU and chrF."""
        return self.data.task == PAIRS
