"""What every kind of task answers about itself. Imports no torch: `--help` and the checks of a recipe need it."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from glassformer.base.errors import ConfigError
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.dataset import Tokenizers
from glassformer.data.kinds import LAYOUTS
from glassformer.data.tokens.vocabulary import UNK, Labels
from glassformer.train.sample_lengths import Untrained

if TYPE_CHECKING:
    from glassformer.decode.answer import Member
    from glassformer.nn.config import ModelConfig
    from glassformer.nn.recipe import Layout
    from glassformer.train.run_data import RunData, Split
    from glassformer.train.settings import Settings


@dataclass(frozen=True)
class Use:
    """A verb that only some runs can be used with."""

    name: str
    cannot: str
    """What is said of the others, as in "RUN gives no labels"."""


@dataclass(frozen=True)
class LineVerb(Use):
    """A verb that reads lines and writes one for each. Its flags, its help and its loop are made from this."""

    summary: str
    about: str
    switches: tuple[tuple[str, str], ...]
    """Flags without a value, and what each does; `json` writes what `LineAnswer.record` gives."""
    examples: tuple[str, ...]
    many: bool = False
    """Whether several runs may answer together."""


class ReadLine(NamedTuple):
    """A line, what a model reads of it, and the parts that the vocabulary lacks."""

    text: str
    ids: list[int]
    unknown: Sequence[str] = ()
    number: int = 0
    """Its place among the lines, from 1."""
    untrained: Untrained | None = None
    """Set if it is shorter or longer than every sample in training."""


class LineAnswer(ABC):
    """What a run says of one line."""

    unknown: Sequence[str]
    """The parts of the line that the vocabulary lacks."""
    cut: str | None = None
    """The limit that the answer reached before its end, if it did."""
    untrained: Untrained | None = None
    """Set if the line is shorter or longer than every sample in training; of several runs, than every one of each."""

    @abstractmethod
    def text(self, switches: Container[str]) -> str:
        """The line to write, with these of the verb's switches given."""

    @abstractmethod
    def record(self) -> dict[str, object]:
        """The same as a JSON object."""


TRANSLATE = Use("translate", "answers no lines")
GENERATE = Use("generate", "writes no text from left to right")
ROLLOUT = Use("rollout", "plays no episodes")
EXPLORE = Use("explore", "reads no tokens")


class Measure(NamedTuple):
    """A metric that can choose the best checkpoint of a run."""

    name: str
    share: bool = False
    """Whether it is a share, from 0 to 1, that is shown in percent."""
    falls: bool = False
    """Whether a smaller value is better."""
    decides: bool = False
    """Whether it decides between evaluations that are equal by the chosen one, in the order of the task's metrics."""


LOSS = Measure("loss", falls=True, decides=True)


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
    metrics: ClassVar[tuple[Measure, ...]] = (LOSS,)
    """The metrics that may select the best checkpoint."""
    usual_metric: ClassVar[str] = "loss"
    """The one to try in place of a metric that does not fit."""
    one_vocabulary: ClassVar[bool] = False
    """Whether source and target have the same vocabulary, always."""
    does: str
    """What a run does, as in "RUN gives labels"."""
    verb: str
    """The command that uses a run."""
    uses: frozenset[Use]
    """The verbs that apply, of those that do not apply to every run."""
    line_verb: ClassVar[LineVerb | None] = None
    """The verb that answers lines by `answer`, if there is one that needs nothing else."""
    reads_objects: bool = False
    """Whether `read_line` may get a JSON object, and reads its fields."""
    joins: ClassVar[bool] = True
    """Whether several runs can be scored or used together, as an ensemble."""
    averages: ClassVar[bool] = False
    """Whether they then each answer by themselves, and the probabilities are averaged; else they write as one."""

    def __init__(self, data: DataConfig) -> None:
        self.data = data

    @property
    def layout(self) -> Layout:
        """How the model reads and writes samples."""
        return LAYOUTS[self.data.layout]

    # --- settings

    @abstractmethod
    def check(self, recipe: Settings) -> None:
        """Refuse settings of other sections that do not fit. Errors: `ConfigError` naming the setting and the way."""

    def refuse_metric(self, recipe: Settings, gives: str) -> None:
        """Refuse a metric of another task; `gives` says what a run of this one gives."""
        if (metric := recipe.training.metric) not in {each.name for each in self.metrics}:
            raise ConfigError(
                f"training.metric={metric!r} does not fit data.layout={self.data.layout!r}, which gives {gives}. Try "
                f"training.metric={self.usual_metric!r}."
            )

    def refuse_tokenizer(self, recipe: Settings, what: str) -> None:
        """Refuse settings of a tokenizer where numbers are read; `what` they are of."""
        for each in fields(TokenizerConfig):
            if (value := getattr(recipe.tokenizer, each.name)) != each.default:
                raise ConfigError(
                    f"{what} are numbers and have no tokens; got tokenizer.{each.name}={value!r} with "
                    f"data.task={self.data.task!r}, which does not use it. Remove tokenizer.{each.name}."
                )

    def sketch(self, recipe: Settings) -> ModelConfig:
        """The model's config for made-up data: it refuses what is impossible before the data are read."""
        return recipe.model.sketch(self.layout)

    # --- data and model

    @abstractmethod
    def prepare(self, recipe: Settings, tokenizers: Tokenizers | None = None) -> RunData:
        """Read and encode the training and dev splits; learn tokenizers from the first unless they are given."""

    def learned(self, recipe: Settings) -> Tokenizers:
        """The tokenizers that training makes of the training data. Errors: those of reading."""
        return self.prepare(recipe).tokenizers

    @abstractmethod
    def split(self, recipe: Settings, tokenizers: Tokenizers, name: str) -> Split:
        """Read one split to score. Errors: those of reading; `DataError` for data that the model does not take."""

    def config(self, recipe: Settings, tokenizers: Tokenizers) -> ModelConfig:
        """The configuration of the model, with the vocabularies of the data.

        Two of them may have the same size, so the tokenizers decide whether one matrix can embed both.
        """
        source, target = tokenizers
        own = None if source is target else source.vocab_size
        config = recipe.model.build(self.layout, target.vocab_size, own)
        return config if source is target else replace(config, share_embeddings=False)

    def begins_with(self, before: Tokenizers) -> Tokenizers:
        """The tokenizers of a run that starts from one with those `before`."""
        return Tokenizers(before.source, before.source) if isinstance(before.target, Labels) else before

    def read_length(self, n: int) -> int:
        """How many places a source of `n` tokens takes, with `marks`."""
        return n + 1

    @property
    def marks(self) -> str:
        """What is read besides a source."""
        return "<eos>"

    # --- the use of a run

    def refuse_unfit(self, run: object, use: Use) -> None:
        """Refuse a verb that a run is not for. Errors: `ConfigError` naming the command that uses it."""
        if use not in self.uses:
            raise ConfigError(f"{run} {self.does} and {use.cannot}. Use glassformer {self.verb} {run}.")

    def read_line(self, line: str, tokenizers: Tokenizers) -> ReadLine:
        """What the model reads of a line, without special tokens. Errors: `DataError` for a line that it cannot."""
        ids = tokenizers.source.encode(line)
        return ReadLine(line, ids, tokenizers.source.lacks(line) if UNK in ids else ())

    def answer(
        self, members: Sequence[Member], lines: Sequence[Sequence[ReadLine]], batch_size: int
    ) -> Iterator[LineAnswer]:
        """What `line_verb` says of each line, in order; each line is there as each member has read it."""
        raise NotImplementedError(f"{type(self).__name__} has no line_verb.")

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
