"""What every kind of task answers about itself. Imports no torch: `--help` and the checks of a recipe need it."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.config import LAYOUTS, DataConfig

if TYPE_CHECKING:
    from glassformer.data.dataset import Tokenizers
    from glassformer.nn.config import ModelConfig
    from glassformer.nn.recipe import Layout
    from glassformer.train.recipe import Recipe
    from glassformer.train.sources.run_data import RunData, Split

CANNOT = {
    "translate": "answers no lines",
    "generate": "writes no text from left to right",
    "classify": "gives no labels",
    "rollout": "plays no episodes",
    "explore": "reads no tokens",
}
"""The verbs that only some tasks can be used with, and what is said of the others."""


class Cut(NamedTuple):
    """How the end of the training data becomes the dev split: the settings of both, and all that decide on the cut."""

    what: str
    whole: str
    dev: str
    settings: tuple[str, ...]
    other: str
    """The setting that names other data to score."""
    made: str | None = None
    """What is cut where no file is named; None: then dev data are made."""


class Task(ABC):
    """A kind of task, with the data settings of one run: what is read, what is learned, and how a run is used."""

    decoded: ClassVar[bool] = False
    """Whether a run answers each source with a text of its own, which is decoded and scored as a whole."""
    decode_settings: tuple[str, ...] | None = ("batch_size", "threads")
    """The settings of [decode] that change what a run gives; None: all."""
    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """The metrics that may select the best checkpoint."""
    one_vocabulary: ClassVar[bool] = False
    """Whether source and target have the same vocabulary, always."""
    does: str
    """What a run does, as in "RUN gives labels"."""
    verb: str
    """The command that uses a run."""
    verbs: frozenset[str]
    """Those of `CANNOT` that apply."""

    def __init__(self, data: DataConfig) -> None:
        self.data = data

    @property
    def layout(self) -> Layout:
        """How the model reads and writes samples."""
        return LAYOUTS[self.data.layout]

    # --- settings

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Refuse settings of other sections that do not fit. Errors: `ConfigError` naming the setting and the way."""

    def sketch(self, recipe: Recipe) -> ModelConfig:
        """The model's config for made-up data: it refuses what is impossible before the data are read."""
        return recipe.model.sketch(self.layout)

    # --- data and model

    @abstractmethod
    def prepare(self, recipe: Recipe, tokenizers: Tokenizers | None = None) -> RunData:
        """Read and encode the training and dev splits; learn tokenizers from the first unless they are given."""

    @abstractmethod
    def split(self, recipe: Recipe, tokenizers: Tokenizers, name: str) -> Split:
        """Read one split to score. Errors: those of reading; `DataError` for data that the model does not take."""

    def config(self, recipe: Recipe, tokenizers: Tokenizers) -> ModelConfig:
        """The configuration of the model, with the vocabularies of the data.

        Two of them may have the same size, so the tokenizers decide whether one matrix can embed both.
        """
        source, target = tokenizers
        own = None if source is target else source.vocab_size
        config = recipe.model.build(self.layout, target.vocab_size, own)
        return config if source is target else replace(config, share_embeddings=False)

    def begins_with(self, before: Tokenizers) -> Tokenizers:
        """The tokenizers of a run that starts from one with those `before`."""
        from glassformer.data.dataset import Tokenizers
        from glassformer.data.tokens.words import Labels

        return Tokenizers(before.source, before.source) if isinstance(before.target, Labels) else before

    def read_length(self, n: int) -> int:
        """How many places a source of `n` tokens takes, with `marks`."""
        return n + 1

    @property
    def marks(self) -> str:
        """What is read besides a source."""
        return "<eos>"

    # --- the use of a run

    def refuse_unfit(self, run: object, verb: str) -> None:
        """Refuse a verb that a run is not for. Errors: `ConfigError` naming the command that uses it."""
        if verb not in self.verbs:
            raise ConfigError(f"{run} {self.does} and {CANNOT[verb]}. Use glassformer {self.verb} {run}.")

    @property
    def held_out(self) -> str:
        """The split that a finished run is scored on: "test", or "dev" if its data have no test split."""
        train, test = (any(path is not None for path in self.data.files(split)) for split in ("train", "test"))
        return "dev" if train and not test else "test"

    def refuse_unnamed(self, split: str) -> None:  # noqa: B027  (most tasks have nothing to refuse here)
        """Refuse to score a split that no file is named for. Errors: `ConfigError`."""

    def next_command(self, run: Path) -> str:
        """A command that a user can type once a run is trained."""
        if self.held_out == "dev":
            return f"Score it on the dev split: glassformer evaluate {shlex.quote(str(run))} --split dev"
        return f"Score it on the test split: glassformer evaluate {shlex.quote(str(run))}"

    def scores(self, other: DataConfig) -> bool:
        """Whether a model of this run can be scored on data of the task of `other`."""
        return other.task == self.data.task

    def other_text(self, split: str, changes: Mapping[str, object]) -> Mapping[str, object]:
        """The settings to score a split with, where some name data in a shorter way."""
        return changes

    cut: ClassVar[Cut | None] = None
    """How the end of the training data is held out, if it is."""

    @property
    def manner(self) -> dict[str, object]:
        """The data settings that the members of an ensemble must share."""
        return {"task": "pairs", "layout": self.data.layout, "objective": self.data.objective}

    @property
    def reads_files(self) -> bool:
        """Whether nothing is learned without a file."""
        return False

    @property
    def window(self) -> int | None:
        """The most tokens that are read at once, where the data and not the model say so."""
        return None

    @property
    def begins(self) -> bool:
        """Whether a text that is read begins with <bos>."""
        return True
