"""Running text: the next token, hidden tokens, or hidden spans. Imports no torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError, DataError, some
from glassformer.data.config import DataConfig
from glassformer.data.corrupt_lengths import check_length, places
from glassformer.data.dataset import Tokenizers, tokenizer_of
from glassformer.data.growth import Growth
from glassformer.data.kinds import TEXT, TEXTS
from glassformer.train.run_data import Scored, Split, Summary, WindowData
from glassformer.train.tasks.task import EXPLORE, GENERATE, LOSS, Cut, Measure, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glassformer.data.batch import Batch
    from glassformer.data.running.text import Part
    from glassformer.data.running.token_file import TokenFile, Windows
    from glassformer.train.evaluate import Scoring
    from glassformer.train.settings import Settings
    from glassformer.train.text_score import Reader

FULL = Growth()
DRAWS = 100
"""How often windows are drawn for a step; if they never have a target, the step refuses them."""
SCORED_WITH = 0
"""The seed of what an evaluation hides, whatever the run's seed, so that all runs are asked the same."""
PASSES = 3
"""What a token costs in training, as a multiple of what it costs to be scored: a gradient costs two forward passes."""


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

    # --- settings

    def check(self, recipe: Settings) -> None:
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

    # --- samples

    def learn(self, recipe: Settings, part: Part) -> Tokenizers:
        """One tokenizer for source and target, learned from a text, or read."""
        tokenizer = tokenizer_of(recipe.tokenizer.kind, part.texts, recipe.tokenizer)
        return Tokenizers(tokenizer, tokenizer)

    def learned(self, recipe: Settings) -> Tokenizers:
        from glassformer.data.running.text import read_parts

        return self.learn(recipe, read_parts(recipe.data, ("train",))["train"])

    # --- data and model

    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> TextData:
        """Read the training and the dev text; learn a tokenizer from the training text unless it is given.

        Errors: `DataError` from reading, for a training text shorter than a window, and for a dev text without targets,
        which would otherwise end the run at its first evaluation.
        """
        from glassformer.data.running.text import has_documents, read_parts
        from glassformer.data.running.token_file import Windows
        from glassformer.train.text_score import check_scored, reader_of

        parts = read_parts(recipe.data, ("train", "dev"))
        recipe = replace(recipe, data=replace(recipe.data, documents=has_documents(recipe.data, parts["train"])))
        tokenizers = tokenizers or self.learn(recipe, parts["train"])
        train, dev = (self.read(recipe, tokenizers, parts[name]) for name in ("train", "dev"))
        windows = Windows(len(train.tokens), recipe.data.window, recipe.data.order, recipe.training.seed)
        try:
            check_scored(dev.tokens, reader_of(recipe.data, tokenizers.target, SCORED_WITH), recipe.data)
        except DataError as error:
            cut = "" if recipe.data.dev_text else f", of which data.dev_share={recipe.data.dev_share} is held out"
            raise DataError(f"The dev text ({dev.name}{cut}) cannot be scored. {error}") from None
        reader = reader_of(recipe.data, tokenizers.target, recipe.training.seed)
        return TextData(recipe, tokenizers, dev, train, windows, reader)

    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> TextSplit:
        """The tokens of a split. Errors: those of reading, and `ConfigError` if the recipe names no text for it."""
        from glassformer.data.running.text import read_parts

        self.refuse_unnamed(name)
        return self.read(recipe, tokenizers, read_parts(recipe.data, (name,))[name])

    def read(self, recipe: Settings, tokenizers: Tokenizers, part: Part) -> TextSplit:
        """The tokens of a part of a text, cached or new. Errors: `ConfigError` for a model that is too short."""
        from glassformer.data.running.text import has_documents
        from glassformer.data.running.token_file import tokens_of

        notes: list[str] = []
        documents = has_documents(recipe.data, part)
        tokens = tokens_of(part, tokenizers.target, documents=documents, note=notes.append)
        if recipe.model.max_len is not None and self.layout.encoder and self.layout.decoder:
            check_length(recipe.data, recipe.model.max_len, tokens.most_special(recipe.data.window))
        return TextSplit(tokens, part.corpus.name, part.n_skipped, tuple(notes))

    # --- the use of a run

    @property
    def held_out(self) -> str:
        return "dev" if self.data.test_text is None else "test"

    def refuse_unnamed(self, split: str) -> None:
        """Refuse a test text that is not named; a dev text may be cut from the training text."""
        if split == "test" and self.data.test_text is None:
            raise ConfigError(
                "The test split needs a text, and the recipe names none. Give one with --data.text FILE, or score the "
                "dev text with --split dev."
            )

    @property
    def continues(self) -> bool:
        """Whether one causal stack goes on with a text."""
        return not self.layout.encoder

    def next_command(self, run: Path) -> str:
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
        return super().manner | {"task": TEXT, "documents": self.data.documents, "window": self.data.window}

    @property
    def window(self) -> int | None:
        return self.data.window

    @property
    def begins(self) -> bool:
        return self.data.documents is not False


# The data of a run: token files, and windows of them.


@dataclass(frozen=True)
class TextSplit(Split):
    """The tokens of one split."""

    tokens: TokenFile
    name: str
    """The file or folder of the text, as the user gave it."""
    skipped: int
    """Empty documents of this split, skipped as asked."""
    notes: tuple[str, ...] = ()
    """What the user should know about the reading of the text."""

    def digest(self) -> str:
        return self.tokens.counts.sha256

    def score(self, scoring: Scoring) -> Scored:
        from glassformer.train.text_score import reader_of, text_samples, text_scores

        reader = reader_of(scoring.recipe.data, scoring.tokenizers.target, SCORED_WITH)
        metrics = text_scores(scoring, self.tokens, reader)
        if not math.isfinite(float(metrics["loss"])):  # such a model writes nothing
            return Scored(metrics, [])
        return Scored(metrics, text_samples(scoring, self.tokens, reader))


@dataclass(frozen=True)
class TextData(WindowData):
    """The data of a run on running text."""

    what = "text"
    dev: TextSplit
    train: TextSplit
    windows: Windows
    reader: Reader

    @property
    def places(self) -> int:
        return places(self.recipe.data)

    @property
    def whole(self) -> int:
        return self.windows.whole

    def batch_of(self, step: int) -> Batch:
        return self._drawn(step, self.recipe.training.growth)[1]

    def named_batch(self, step: int, most: int = 8) -> str:
        starts = self._starts(step - 1, self.recipe.training.growth)
        shown = some([f"{start:,}" for start in sorted(starts.tolist())], most)
        return (
            f"Its batch, in epoch {self.epoch(step - 1)}, is made of the windows of {self.train.name} that begin at "
            f"the tokens {shown} (counted from 0)."
        )

    def extremes(self) -> list[Batch]:
        """One window, because all have the same length."""
        return [self._batch(self._starts(0)[:1])]

    def largest(self) -> list[Batch]:
        """One batch, because all have the same size, or nearly."""
        return [self._batch(self._starts(0))]

    def summary(self) -> Summary:
        from glassformer.data.running.token_file import count_evaluation_windows

        data = self.recipe.data
        batches, first = -(-self.whole // self.rows), self._batch(self._starts(0))
        return Summary(
            what="windows",
            samples=self.whole,
            dev_samples=count_evaluation_windows(self.reader.n_read(self.dev.tokens), data.window, data.stride),
            tokens=first.n_tokens * batches,
            longest=data.window,
            batches=batches,
            padding=first.pad_share,
            epochs=self.epochs,
        )

    def notes(self) -> list[str]:
        vocabulary = f"a vocabulary of {self.tokenizers.target.vocab_size:,} tokens"
        lines = [
            f"data: {description(self.train)} to train on; {description(self.dev)} as dev text; {vocabulary}",
            f"batches: {self.rows:,} windows of {self.recipe.data.window:,} tokens, {self.recipe.data.order}; "
            f"{self.whole:,} windows per epoch, {self.epochs:.2f} epochs in the run",
        ]
        growth, training = self.recipe.training.growth, self.recipe.training
        lines += self.warmup_notes()
        if growth.length_steps:
            few = max(2, growth.length(1, self.recipe.data.window))
            lines.append(f"length warm-up: over {training.length_warmup:,} steps from windows of {few:,} tokens")
        for name, split in (("training", self.train), ("dev", self.dev)):
            lines += split.notes
            if split.skipped:
                lines.append(f"skipped: {split.skipped:,} empty {name} documents, as data.skip_empty asks")
            if unknown := split.tokens.counts.n_unknown:
                share = unknown / len(split.tokens)
                lines.append(f"unknown: {unknown:,} tokens of the {name} text ({share:.1%}) are <unk>")
        return [*lines, *self._long_evaluation()]

    def _long_evaluation(self) -> list[str]:
        """A line for the user if to score the dev text takes longer than the steps before it."""
        training = self.recipe.training
        between = min(training.evaluate_every or training.steps, training.steps)
        data = self.recipe.data
        read = len(self.dev.tokens) * data.window / (data.stride or data.window)
        times = read / (PASSES * between * self.rows * data.window)
        if times < 1:
            return []
        way = f"a data.dev_share below {data.dev_share:g}" if data.dev_text is None else "a shorter data.dev_text"
        return [
            f"evaluation: scores {len(self.dev.tokens):,} dev tokens, which takes about {times:.1f} times as long as "
            f"{between:,} steps; {way} takes less"
        ]

    def written(self) -> list[Path]:
        return [split.tokens.path for split in (self.train, self.dev) if split.tokens.new]

    def differing(self, split: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
        changed = self.train if split == "train" else self.dev
        return f"the contents of the {'training' if split == 'train' else split} text ({changed.name})"

    def settings(self, split: str) -> list[str]:
        """The setting of the split's text; if dev is the end of the training text, that of the training text."""
        own = split == "train" or self.recipe.data.dev_text is not None
        return [f"data.{TEXTS[split if own else 'train']}"]

    def _starts(self, step: int, growth: Growth = FULL) -> NDArray[np.int64]:
        """Where the windows of a step start."""
        return self._drawn(step, growth)[0]

    def _drawn(self, step: int, growth: Growth) -> tuple[NDArray[np.int64], Batch]:
        """Where the windows of a step start, as many as a warm-up of the batch allows, and their batch.

        A stretch of <unk> or of one-word documents may have no target, and thus no mean loss. Windows are then drawn
        again until the batch has one. A resumed run draws the same windows.
        """
        from glassformer.train.text_score import text_objective

        again = 0
        while True:
            starts = self.windows.starts(step, self.rows, again)[: self.rows_at(step, growth)]
            batch = self._batch(starts, step, growth)
            again += 1
            if again == DRAWS or text_objective(self.recipe.data)(batch).n_targets:
                return starts, batch

    def _batch(self, starts: NDArray[np.int64], step: int = 0, growth: Growth = FULL) -> Batch:
        """The windows of a step, as long as a warm-up of the length allows."""
        length = max(2, growth.length(step + 1, self.recipe.data.window))
        return self.reader.batch(self.train.tokens, starts, length, step=step)


def description(split: TextSplit) -> str:
    """The size of a split, for the user."""
    counts = split.tokens.counts
    plural = "" if counts.n_documents == 1 else "s"
    documents = f" in {counts.n_documents:,} document{plural}" if counts.documents else ""
    return f"{counts.n_tokens:,} tokens ({counts.n_bytes:,} bytes){documents} of {split.name}"
