"""Labelled texts: one label for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.train.settings import ANSWER_METRICS, LABEL_METRICS
from glassformer.train.tasks.pairs import Pairs
from glassformer.train.tasks.task import Task

if TYPE_CHECKING:
    from glassformer.data.dataset import Tokenizers
    from glassformer.nn.config import ModelConfig
    from glassformer.train.recipe import Recipe


class Labels(Pairs):
    """A classifier; its samples are pairs of a text and a label."""

    decoded = False
    metrics = (*LABEL_METRICS, "loss")

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        self.does, self.verb = "gives labels", "classify"
        self.verbs = frozenset({"classify", "explore"})
        self.decode_settings = Task.decode_settings

    def check(self, recipe: Recipe) -> None:
        """Refuse metrics of answers."""
        if (metric := recipe.training.metric) in ANSWER_METRICS:
            raise ConfigError(
                f"training.metric={metric!r} does not fit data.layout={self.data.layout!r}, which gives labels. "
                "Try training.metric='accuracy'."
            )

    def config(self, recipe: Recipe, tokenizers: Tokenizers) -> ModelConfig:
        """A head with a score for each label."""
        return recipe.model.build(self.layout, tokenizers.source.vocab_size, n_labels=len(tokenizers.labels))

    def begins_with(self, before: Tokenizers) -> Tokenizers:
        """Only the tokenizer of the texts: labels are those of the new data."""
        from glassformer.data.dataset import Tokenizers

        return Tokenizers(before.source, before.source)

    def target_length(self, source: int, wide: int) -> int:
        """Each text has one label."""
        return 1

    @property
    def marks(self) -> str:
        """What is read besides a text."""
        return "<bos>"

    def scores(self, other: DataConfig) -> bool:
        """Only texts with labels."""
        return Task.scores(self, other)
