"""The settings of the data: which pairs to learn from, and how their text becomes token ids. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import lookup, suggestion

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
    header: bool = False
    """The first line of a labelled file names its columns; so it is anyway where a column is given by name."""
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

        lookup(dict.fromkeys((*TASKS, *FILES)), self.task, "data.task")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"data.layout={self.layout!r} is not known. {suggestion(self.layout, LAYOUTS)}")
        if (self.task == LABELLED) != (self.layout == LABEL):
            raise ConfigError(
                f"data.task={LABELLED!r} and data.layout={LABEL!r} go together: labels are there to be told; got "
                f"data.task={self.task!r} and data.layout={self.layout!r}. Set both, or neither."
            )
        self._check_files()
        self._check_sizes()

    def files(self, split: str) -> tuple[str | None, str | None, str | None]:
        """The TSV file, the source file and the target file named for one of `SPLITS`; None where not given."""
        if split not in SPLITS:
            raise ConfigError(f"split={split!r} is not known. {suggestion(split, SPLITS)}")
        return getattr(self, split), getattr(self, f"{split}_source"), getattr(self, f"{split}_target")

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
        for name in ("train_size", "dev_size", "test_size", "min_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"data.{name} is {getattr(self, name)}, but must be at least 1.")
        if self.symbols < 2:
            raise ConfigError(f"data.symbols is {self.symbols}, but must be at least 2, or there is nothing to learn.")
        if self.max_length < self.min_length:
            raise ConfigError(
                f"data.max_length ({self.max_length}) is below data.min_length ({self.min_length}). "
                f"Set data.max_length to at least {self.min_length}."
            )


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into tokens, and whether source and target use one vocabulary."""

    kind: str = "word"
    """word (cut at white space), character, byte, or bpe (byte-level subwords, for real text)."""
    source_kind: str | None = None
    """Kind for the source side alone; None: as `kind`. Another kind needs shared = false."""
    shared: bool = True
    """One vocabulary for both sides: fewer parameters, and the two embeddings can be tied."""
    vocab_size: int = 8_000
    """Entries to train, special tokens included; bpe only, the other kinds keep all they meet. 8,000 suits 10 MB."""
    min_count: int = 1
    """Words or characters met fewer times in the training text become <unk>; word and character only."""

    def __post_init__(self) -> None:
        from glassformer.data.tokenizer import TOKENIZERS  # here, because a tokenizer's own signature names this class

        lookup(TOKENIZERS, self.kind, "tokenizer.kind")
        if self.source_kind is not None:
            lookup(TOKENIZERS, self.source_kind, "tokenizer.source_kind")
            if self.shared and self.source_kind != self.kind:
                raise ConfigError(
                    f"One vocabulary cannot be of two kinds: tokenizer.source_kind is {self.source_kind!r} and "
                    f"tokenizer.kind is {self.kind!r}. Set tokenizer.shared = false, or make the two kinds equal."
                )
        if self.min_count < 1:
            raise ConfigError(f"tokenizer.min_count must be at least 1; got {self.min_count}. Try min_count=2.")
        if self.min_count > 1 and not {"word", "character"} & {self.kind, self.source_kind}:
            raise ConfigError(
                f"tokenizer.min_count ({self.min_count}) drops rare words or characters, but tokenizer.kind is "
                f"{self.kind!r}, which has neither. Set min_count=1, or tokenizer.kind = 'word'."
            )
        if self.vocab_size < BYTES_AND_SPECIALS and "bpe" in (self.kind, self.source_kind):
            raise ConfigError(
                f"tokenizer.vocab_size is {self.vocab_size}, but bpe begins with 256 bytes and 6 special tokens. "
                f"Set tokenizer.vocab_size to at least {BYTES_AND_SPECIALS}, or use tokenizer.kind = 'byte'."
            )


def _named(split: str, tsv: str | None, source: str | None, target: str | None) -> list[tuple[str, str | None]]:
    return [(split, tsv), (f"{split}_source", source), (f"{split}_target", target)]
