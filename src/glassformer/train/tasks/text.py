"""Running text: the next token, hidden tokens, or hidden spans."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig
from glassformer.data.corrupt_lengths import check_length, places
from glassformer.data.kinds import TEXT
from glassformer.train.tasks.task import EXPLORE, GENERATE, LOSS, Cut, Measure, Task

if TYPE_CHECKING:
    from glassformer.data.dataset import Tokenizers
    from glassformer.train.settings import Settings
    from glassformer.train.text_data import TextData, TextSplit


class Text(Task):
    """A language model, causal, masked, or with an encoder that reads what is left of the text."""

    does = "predicts running text"
    one_vocabulary = True
    metrics = (LOSS, Measure("token_accuracy", share=True))
    cut = Cut(
        *("text", "text", "dev_text"),
        ("dev_share", "dev_text", "field", "json", "skip_empty"),
        *("text", "the text that ships with Python"),
    )

    def __init__(self, data: DataConfig) -> None:
        super().__init__(data)
        writes = self.layout.decoder
        self.verb = GENERATE.name if writes else "evaluate"
        self.uses = frozenset({GENERATE, EXPLORE} if writes else {EXPLORE})

    @property
    def continues(self) -> bool:
        """Whether one causal stack goes on with a text."""
        return not self.layout.encoder

    def check(self, recipe: Settings) -> None:
        """Refuse settings that do not fit running text."""
        data, tokenizer, model, training = recipe.data, recipe.tokenizer, recipe.model, recipe.training
        metrics = [each.name for each in self.metrics if each is LOSS or data.objective == "masked"]
        if training.metric not in metrics:
            raise ConfigError(
                f"With data.task={TEXT!r} and data.objective={data.objective!r}, training.metric must be "
                f"{' or '.join(metrics)}; got {training.metric!r}. Try training.metric='loss'."
            )
        if not tokenizer.shared or tokenizer.source_kind is not None:
            name, value = ("shared", "False") if not tokenizer.shared else ("source_kind", repr(tokenizer.source_kind))
            raise ConfigError(
                f"Running text needs only one vocabulary; got tokenizer.{name}={value}. Remove tokenizer.{name}."
            )
        if training.pool is not None:
            raise ConfigError(
                "training.pool sorts samples by length, but all windows of running text are equally long; got "
                f"{training.pool}. Remove training.pool."
            )
        if data.order == "sequential" and training.growth.steps:
            raise ConfigError(
                "data.order='sequential' reads each token once per epoch, but a warm-up of batch or length would skip "
                f"some; got {training.growth.steps} steps of it. Set data.order='random', or both warm-ups to 0."
            )
        if data.stride is not None and data.objective != "next_token":
            raise ConfigError(
                "data.stride belongs to data.objective='next_token', whose evaluation scores every token; got "
                f"data.stride={data.stride} with data.objective={data.objective!r}. Remove data.stride."
            )
        if training.batch_tokens < (least := places(data)):
            raise ConfigError(
                f"A batch must have room for one window, which takes {least} places with data.window={data.window} and "
                f"data.objective={data.objective!r}; got training.batch_tokens={training.batch_tokens}. Set it to at "
                f"least {least}, or use a shorter window."
            )
        check_length(data, model.max_len)

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> TextData:
        """Read the texts, as token files."""
        from glassformer.train.text_data import prepare_text

        return prepare_text(recipe, tokenizers)

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> TextSplit:
        """The tokens of a split."""
        from glassformer.train.text_data import prepare_text_split

        self.refuse_unnamed(name)
        return prepare_text_split(recipe, tokenizers, name)

    @property
    def held_out(self) -> str:
        """The test text, if one is named."""
        return "dev" if self.data.test_text is None else "test"

    def refuse_unnamed(self, split: str) -> None:
        """Refuse a test text that is not named; a dev text may be cut from the training text."""
        if split == "test" and self.data.test_text is None:
            raise ConfigError(
                "The test split needs a text, and the recipe names none. Give one with --data.text FILE, or score the "
                "dev text with --split dev."
            )

    def next_command(self, run: Path) -> str:
        """Generate, or score another text."""
        if self.continues:
            return f"Generate text: glassformer generate {shlex.quote(str(run))} --prompt TEXT"
        if self.data.test_text is None:
            return f"Score it on another text: glassformer evaluate {shlex.quote(str(run))} --data.text FILE"
        return super().next_command(run)

    def other_text(self, split: str, changes: Mapping[str, object]) -> Mapping[str, object]:
        """Let `data.text` name the text to score. Errors: `ConfigError` with a split of the run's own."""
        if "data.text" not in changes:
            return changes
        if split != "test":
            raise ConfigError(
                f"--data.text names a text to score, --split {split} asks for a split of the run. Give only one of "
                "them."
            )
        return {"data.test_text" if name == "data.text" else name: value for name, value in changes.items()}

    @property
    def manner(self) -> dict[str, object]:
        """Also what a document is, and how much is read."""
        return super().manner | {"task": TEXT, "documents": self.data.documents, "window": self.data.window}

    @property
    def window(self) -> int | None:
        """The context that the model was trained with."""
        return self.data.window

    @property
    def begins(self) -> bool:
        """Only documents do."""
        return self.data.documents is not False
