"""The settings of the data: which pairs to learn from, and how their text becomes token ids. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from glassformer.foundation.bounds import at_least, at_most
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import lookup, suggestion
from glassformer.foundation.typed import check_types

PAIRS = "pairs"
LABELLED = "labelled"
FILES = (PAIRS, LABELLED)
"""The tasks that read files of the user."""
EQUAL_LENGTHS = ("copy", "reverse", "sort")
"""The tasks whose answers have as many tokens as their sources."""
SPLITS = ("train", "dev", "test")
LABEL = "label"
LAYOUTS = ("encoder-decoder", "encoder", LABEL)
BYTES_AND_SPECIALS = 256 + 6  # the smallest byte-level vocabulary: every byte, and the six special tokens
MOST_ENTRIES = 2**20
"""Of a vocabulary, and of the symbols that a task writes with: no model here has a wider head."""
MOST_PAIRS = {"train_size": 10_000_000, "dev_size": 1_000_000, "test_size": 1_000_000}
"""That a task makes: a few minutes of work each."""
MOST_SYMBOLS = 100_000_000
"""That a task writes in the sources of one split, pairs times the longest length: about a minute and 1 GB."""
MOST_COUNT = 2**31 - 1

USES: tuple[tuple[tuple[str, ...], str, Callable[[str], bool]], ...] = (
    (
        ("symbols", "min_length", "max_length"),
        f"the tasks {', '.join(EQUAL_LENGTHS)}",
        lambda task: task in EQUAL_LENGTHS,
    ),
    (tuple(MOST_PAIRS), "the tasks that make their own pairs", lambda task: task not in FILES),
    (("text_column", "label_column", "header"), f"data.task={LABELLED!r}", lambda task: task == LABELLED),
    (("skip_empty",), "the tasks that read files", lambda task: task in FILES),
)
"""Settings that not every task reads: their names, whose they are, and whether a task is one of those."""


def unused(task: str) -> list[str]:
    """The settings that a task has no use for."""
    return [name for names, _, reads in USES if not reads(task) for name in names]


@dataclass(frozen=True)
class DataConfig:
    """Where pairs of source and target text come from: files of the user, or a task that makes them."""

    task: str = PAIRS
    """"pairs" and "labelled" read the files named below; any other name is a synthetic task that needs no files."""
    train: str | None = None
    """Training pairs in one file: source (or text), TAB, target (or label) on each line; plain or .gz."""
    dev: str | None = None
    """Pairs that choose the best checkpoint, same form as `train`."""
    test: str | None = None
    """Pairs for the final score, same form as `train`."""
    train_source: str | None = None
    """Source side of the training pairs, one sentence a line; goes with `train_target`, replaces `train`."""
    train_target: str | None = None
    """Target side of the training pairs, line by line beside `train_source`."""
    dev_source: str | None = None
    """Source side of the dev pairs; goes with `dev_target`, replaces `dev`."""
    dev_target: str | None = None
    """Target side of the dev pairs."""
    test_source: str | None = None
    """Source side of the test pairs; goes with `test_target`, replaces `test`."""
    test_target: str | None = None
    """Target side of the test pairs."""
    text_column: str | None = None
    """Labelled files: column of the text, by name or number from 1 (.jsonl: field); none: the first (.jsonl: text)."""
    label_column: str | None = None
    """Labelled files: column of the label, in the same way; none: the second (.jsonl: label)."""
    header: bool | None = None
    """The first line of a labelled file names its columns, as it does where one is given by name; none: not said, and
    refused where it looks so."""
    skip_empty: bool = False
    """Skip (and count) pairs with an empty side. False refuses them, since they usually mean misaligned files."""
    symbols: int = 18
    """Different symbols in copy, reverse and sort; 18 as in the tutorial notebooks."""
    min_length: int = 8
    """Shortest source of copy, reverse and sort, in symbols."""
    max_length: int = 8
    """Longest source of copy, reverse and sort, in symbols; equal to `min_length` there is no padding at all."""
    layout: str = LAYOUTS[0]
    """"encoder-decoder"; "encoder": [source, <sep>, blanks], filled in place; or "label": a label for each text."""
    train_size: int = 100_000
    """Training pairs that a synthetic task makes."""
    dev_size: int = 500
    """Dev pairs that a synthetic task makes: enough to see 0.2 % differences, few enough to be quick."""
    test_size: int = 1_000
    """Test pairs that a synthetic task makes."""

    def __post_init__(self) -> None:
        from glassformer.data.synthetic import TASKS  # here, because a task's own signature names this class

        check_types(self, "data")
        lookup(dict.fromkeys((*TASKS, *FILES)), self.task, "data.task")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"data.layout={self.layout!r} is not known. {suggestion(self.layout, LAYOUTS)}")
        if (self.task == LABELLED) != (self.layout == LABEL):
            raise ConfigError(
                f"data.task={LABELLED!r} and data.layout={LABEL!r} go together: labels are there to be told; got "
                f"data.task={self.task!r} and data.layout={self.layout!r}. Set both, or neither."
            )
        self._check_names()
        self._check_files()
        self._check_use()
        self._check_sizes()

    def files(self, split: str) -> tuple[str | None, str | None, str | None]:
        """The TSV file, the source file and the target file named for one of `SPLITS`; None where not given."""
        if split not in SPLITS:
            raise ConfigError(f"split={split!r} is not known. {suggestion(split, SPLITS)}")
        return getattr(self, split), getattr(self, f"{split}_source"), getattr(self, f"{split}_target")

    def named_files(self, split: str) -> list[str]:
        """The files that a split is read from, one or two; none where the task makes its pairs.

        Errors: `ConfigError` where the task reads files, and none is named.
        """
        found = [path for path in self.files(split) if path is not None]
        if found or self.task not in FILES:
            return found
        if self.task == LABELLED:
            raise ConfigError(
                f"There is no file for the {split} texts. Set data.{split} to a file of lines with text, TAB, label."
            )
        raise ConfigError(
            f"There is no file for the {split} pairs. Set data.{split} to a file of lines with source, TAB, target, or "
            f"data.{split}_source and data.{split}_target to two parallel files, or data.task to a synthetic task."
        )

    def _check_use(self) -> None:
        """A setting that the task does not read would be ignored in silence; a switch that is off asks for nothing."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        given = [name for name, (value, default) in values.items() if value != default and value is not False]
        for name in sorted({*unused(self.task)} & {*given}):
            whose = next(whose for names, whose, _ in USES if name in names)
            raise ConfigError(
                f"data.{name} belongs to {whose}; got data.{name}={getattr(self, name)!r} with "
                f"data.task={self.task!r}, which has no use for it. Leave it out."
            )

    def _check_names(self) -> None:
        """An empty path is the folder that one is in, and no column has an empty name."""
        paths = [name for split in SPLITS for name in (split, f"{split}_source", f"{split}_target")]
        for name in [name for name in (*paths, "text_column", "label_column") if getattr(self, name) == ""]:
            raise ConfigError(
                f"data.{name} names a {'file' if name in paths else 'column'}; got ''. Name one, or leave it out."
            )

    def _check_files(self) -> None:
        for split in SPLITS:
            tsv, source, target = self.files(split)
            given = [f"data.{name}" for name, path in _named(split, tsv, source, target) if path is not None]
            if given and self.task not in FILES:
                raise ConfigError(
                    f"The task {self.task!r} makes its own pairs and reads no file, but {given[0]} is set. "
                    f"Remove {given[0]}, or set data.task = {PAIRS!r}."
                )
            if self.task == LABELLED and (source or target):
                raise ConfigError(
                    f"Labelled text comes in one file a split, but {given[0]} is set. Name the file by data.{split}."
                )
            if tsv is not None and len(given) > 1:
                raise ConfigError(
                    f"The {split} pairs come from one place, but {' and '.join(given)} are set. "
                    f"Keep data.{split} (one file with TABs), or both data.{split}_source and data.{split}_target."
                )
            if (source is None) != (target is None):
                missing = f"data.{split}_source" if source is None else f"data.{split}_target"
                raise ConfigError(f"{given[0]} is set without {missing}. Parallel files come in twos: set {missing}.")

    def _check_sizes(self) -> None:
        at_least(self, "data", 1, *MOST_PAIRS, "min_length")
        for name, most in MOST_PAIRS.items():
            at_most(self, "data", most, name)
        at_most(self, "data", MOST_ENTRIES, "symbols")
        at_most(self, "data", MOST_SYMBOLS, "min_length", "max_length")
        if self.symbols < 2:
            raise ConfigError(
                f"data.symbols must be at least 2, or there is nothing to learn; got {self.symbols}. Try symbols=18."
            )
        if self.max_length < self.min_length:
            raise ConfigError(
                f"data.max_length ({self.max_length}) is below data.min_length ({self.min_length}). "
                f"Set data.max_length to at least {self.min_length}."
            )
        if self.task in EQUAL_LENGTHS:
            self._check_symbols()

    def _check_symbols(self) -> None:
        """Many long sources are each within bounds, and together more than a machine holds."""
        for name in MOST_PAIRS:
            size = getattr(self, name)
            if size * self.max_length > MOST_SYMBOLS:
                raise ConfigError(
                    f"data.{name} ({size}) times data.max_length ({self.max_length}) is what a task may have to "
                    f"write, at most {MOST_SYMBOLS} symbols; got {size * self.max_length}. "
                    f"Try {name}={max(1, MOST_SYMBOLS // self.max_length)}."
                )


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into tokens, and whether source and target use one vocabulary."""

    kind: str = "word"
    """word (cut at white space), character, byte, or subwords of bytes, for real text: bpe, wordpiece, unigram."""
    source_kind: str | None = None
    """Kind for the source side alone; None: as `kind`. Another kind needs shared = false."""
    shared: bool = True
    """One vocabulary for both sides: fewer parameters, and the two embeddings can be tied."""
    vocab_size: int = 8_000
    """Entries of subwords, special tokens included; the other kinds keep all that they meet. 8,000 suits 10 MB."""
    min_count: int = 1
    """Words or characters met fewer times in the training text become <unk>; word and character only."""

    def __post_init__(self) -> None:
        from glassformer.data.tokenizer import TOKENIZERS  # here, because a tokenizer's own signature names this class

        check_types(self, "tokenizer")
        lookup(TOKENIZERS, self.kind, "tokenizer.kind")
        if self.source_kind is not None:
            lookup(TOKENIZERS, self.source_kind, "tokenizer.source_kind")
            if self.shared and self.source_kind != self.kind:
                raise ConfigError(
                    f"One vocabulary cannot be of two kinds: tokenizer.source_kind is {self.source_kind!r} and "
                    f"tokenizer.kind is {self.kind!r}. Set tokenizer.shared = false, or make the two kinds equal."
                )
        at_least(self, "tokenizer", 1, "min_count", "vocab_size")
        at_most(self, "tokenizer", MOST_COUNT, "min_count")
        at_most(self, "tokenizer", MOST_ENTRIES, "vocab_size")
        if self.min_count > 1 and not {"word", "character"} & {self.kind, self.source_kind}:
            raise ConfigError(
                f"tokenizer.min_count ({self.min_count}) drops rare words or characters, but tokenizer.kind is "
                f"{self.kind!r}, which has neither. Set min_count=1, or tokenizer.kind = 'word'."
            )
        for kind in filter(None, (self.kind, self.source_kind)):
            if self.vocab_size < (least := TOKENIZERS[kind].least_vocab_size):
                raise ConfigError(
                    f"tokenizer.vocab_size is {self.vocab_size}, but {kind} begins with {least} entries, which are the "
                    f"bytes and the 6 special tokens. Set tokenizer.vocab_size to at least {least}, or use "
                    "tokenizer.kind = 'byte'."
                )


def _named(split: str, tsv: str | None, source: str | None, target: str | None) -> list[tuple[str, str | None]]:
    return [(split, tsv), (f"{split}_source", source), (f"{split}_target", target)]
