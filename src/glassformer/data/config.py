"""The settings of the data: what to learn from, and how text becomes token ids. Imports no torch."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup, suggestion
from glassformer.base.settings import Rule, check, setting
from glassformer.data.kinds import (
    CORRUPTIONS,
    EQUAL_LENGTHS,
    KINDS,
    LAYOUTS,
    MADE,
    MOST_EPISODES,
    MOST_STEPS,
    MOST_WINDOW,
    OBJECTIVES,
    ORDERS,
    PAIRED,
    PAIRS,
    ROOMS,
    TEXT,
    TEXT_LAYOUTS,
    TEXTS,
    TRAJECTORIES,
    Kind,
    readers,
    unused,
)
from glassformer.data.lines import no_such_file
from glassformer.data.tokens.vocabulary import MOST_ENTRIES

SPLITS = ("train", "dev", "test")
MOST_PAIRS = {"train_size": 10_000_000, "dev_size": 1_000_000, "test_size": 1_000_000}
"""Most pairs that a task makes: a few minutes of work each."""
MOST_SYMBOLS = 100_000_000
"""Most symbols that a task writes in one split's sources, pairs times the longest length: about a minute and 1 GB."""
MOST_COUNT = 2**31 - 1
BLEU_TOKENIZERS = ("auto", "13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none")
BLEU_ORDERS = ("auto", "full", "effective")


def kind_of(task: str) -> Kind:
    """The kind of a task. Errors: `ConfigError` for an unknown one, with the nearest."""
    from glassformer.data.synthetic import TASKS  # here, because their signatures name `DataConfig`

    return lookup({**dict.fromkeys(TASKS, MADE), **KINDS}, task, "data.task")


@dataclass(frozen=True)
class DataConfig:
    """The data to learn from: pairs of texts, from the user's files or made by a task; or running text."""

    task: str = PAIRS
    """"text" reads running text; copy, reverse, sort, numbers and spell generate pairs; all others read the files
    below."""
    train: str | None = None
    """Training pairs, one file: source (or text), TAB, target (or label) on each line, or .csv, or JSON; plain or
    .gz."""
    dev: str | None = None
    """Dev (validation) pairs, to select the best checkpoint; as in `train`."""
    test: str | None = None
    """Test pairs, for the final score; same format as `train`."""
    train_source: str | None = None
    """Source side of the training pairs, one sentence per line; with `train_target`, replaces `train`."""
    train_target: str | None = None
    """Target side of the training pairs, parallel to `train_source`."""
    dev_source: str | None = None
    """Source side of the dev pairs; with `dev_target`, replaces `dev`."""
    dev_target: str | None = None
    """Target side of the dev pairs."""
    test_source: str | None = None
    """Source side of the test pairs; with `test_target`, replaces `test`."""
    test_target: str | None = None
    """Target side of the test pairs."""
    text_column: str | None = None
    """Files with labels, tags or numbers: column of the text, by name or number from 1 (JSON: field), several with
    commas where features are read; unset: first (JSON: text), or all others."""
    label_column: str | None = None
    """The same files: column of the label, likewise; unset: second, of tags and numbers last (JSON: label, or tags)."""
    source_field: str | None = None
    """Pairs: column of the source, by name or number from 1 (JSON: field, as translation.en); unset: first (JSON:
    source)."""
    target_field: str | None = None
    """Pairs: column of the target, likewise; unset: second (JSON: target)."""
    header: bool | None = None
    """Pairs and labelled files: the first line is a header (implied if a column is given by name); unset: it is not,
    and refused if it looks like one."""
    json: bool | None = None
    """Files hold JSON: an object on each line, or an array of them; unset: .jsonl, .ndjson and .jsonlines do, and what
    only looks like it is refused unless a field is named."""
    skip_empty: bool = False
    """Skip and count pairs with an empty side, empty documents and blank lines. Off: they are an error, usually a
    mistake."""
    bleu_tokenizer: str = setting(BLEU_TOKENIZERS[0], known=BLEU_TOKENIZERS)
    """Pairs: how BLEU splits words: auto (by the script of the targets), or sacrebleu's 13a, zh, ja-mecab, ko-mecab,
    char, intl or none."""
    bleu_order: str = setting(BLEU_ORDERS[0], known=BLEU_ORDERS)
    """Pairs: BLEU's n-grams: full (1 to 4 words), effective (up to the longest there is), or auto (effective if no
    target has four words)."""
    symbols: int = setting(18, 2, MOST_ENTRIES, why=", as one symbol teaches nothing", advice="18")
    """Number of distinct symbols in copy, reverse and sort; the tutorial notebooks have 18."""
    min_length: int = setting(8, 1, MOST_SYMBOLS)
    """Shortest source of copy, reverse and sort, in symbols."""
    max_length: int = setting(8, 1, MOST_SYMBOLS)
    """Longest source of copy, reverse and sort, in symbols; equal to `min_length`, there is no padding."""
    layout: str = PAIRED
    """"encoder-decoder"; "encoder": [source, <sep>, blanks], blanks filled at once; "label": one label per text;
    running text: as the objective needs; other tasks: their own, as "actions" of trajectories."""
    train_size: int = setting(100_000, 1, MOST_PAIRS["train_size"])
    """Training pairs that a synthetic task generates."""
    dev_size: int = setting(500, 1, MOST_PAIRS["dev_size"])
    """Dev pairs that a synthetic task generates: enough to resolve 0.2 %, few enough to score quickly."""
    test_size: int = setting(1_000, 1, MOST_PAIRS["test_size"])
    """Test pairs that a synthetic task generates."""
    text: str | None = None
    """Training text: a file, plain, .jsonl or other JSON, also .gz, or a folder; unset: Python's own documentation."""
    dev_text: str | None = None
    """Dev text, which selects the best checkpoint, same formats as `text`; unset: the end of the training text."""
    test_text: str | None = None
    """Test text, for the final score, same formats as `text`."""
    field: str | None = None
    """JSON: field that holds the text, "a.b" for a nested one; unset: text."""
    dev_share: float = setting(0.1, above=0, below=1, advice="0.1")
    """Fraction of the training text, or of the training episodes, at its end, held out as dev data where none is
    given."""
    window: int = setting(256, 1)
    """Context length: tokens, or steps of an episode, that the model reads at once."""
    stride: int | None = setting(None, 1)
    """Tokens from one evaluation window to the next; unset: `window`. Smaller: more context for each token."""
    order: str = "random"
    """Training windows at "random" positions, or "sequential", one after the other."""
    documents: bool | None = None
    """Put each document between <bos> and <eos>; off: one running text. Unset: on if there are several documents."""
    document_mask: bool = False
    """Attention never crosses the boundary of a document."""
    objective: str = next(iter(OBJECTIVES))
    """next_token or prefix (layout decoder); masked (layout masked); T5's spans or BART's noise (encoder-decoder)."""
    mask_share: float = setting(0.15, above=0, below=1, advice="0.1")
    """Fraction of the tokens that masked, spans and noise take out; BERT and T5: 0.15, BART: 0.3."""
    mean_span: float = 3.0
    """Mean length of the spans that spans and noise take out, in tokens; 3 as in T5 and BART."""
    whole_words: bool = False
    """Whole-word masking, for the objective masked."""
    permute_sentences: bool = False
    """Shuffle the sentences of the source, as BART does, for the objective noise."""
    environment: str | None = None
    """Trajectories: where `rollout` acts: "rooms", which also makes episodes, or the id of a gymnasium environment."""
    discount: float = setting(1.0, above=0, most=1, why=", as a later reward never counts more")
    """Trajectories: discount factor of the returns-to-go, per step."""

    def __post_init__(self) -> None:
        check(self, "data")
        kind = kind_of(self.task)
        if self.layout not in LAYOUTS:
            raise ConfigError(f"data.layout={self.layout!r} is not known. {suggestion(self.layout, LAYOUTS)}")
        for name, its in KINDS.items():
            if its.layouts and (its is kind) != (self.layout in its.layouts):
                raise ConfigError(
                    f"data.task={name!r} and data.layout={' or '.join(map(repr, its.layouts))} only work together; got "
                    f"data.task={self.task!r} and data.layout={self.layout!r}. Set both, or neither."
                )
        check_names(self)
        check_files(self)
        self._check_use()
        self._check_sizes()
        check_text(self)
        check_trajectories(self)

    @property
    def kind(self) -> Kind:
        """What the task reads."""
        return kind_of(self.task)

    def files(self, split: str) -> tuple[str | None, str | None, str | None]:
        """The TSV file, the source file and the target file named for one of `SPLITS`; None where not given."""
        if split not in SPLITS:
            raise ConfigError(f"split={split!r} is not known. {suggestion(split, SPLITS)}")
        return getattr(self, split), getattr(self, f"{split}_source"), getattr(self, f"{split}_target")

    def text_file(self, split: str) -> str | None:
        """The file or folder named for the running text of one of `SPLITS`; None where not given."""
        return getattr(self, lookup(TEXTS, split, "split"))

    def named_files(self, split: str) -> list[str]:
        """The one or two files that a split is read from; none if the task makes its pairs, or if no text is named.

        Errors: `ConfigError` if the task reads pairs from files, and none is named.
        """
        if self.task == TEXT:
            path = self.text_file(split)
            return [] if path is None else [path]
        found = [path for path in self.files(split) if path is not None]
        if found or not self.kind.line:
            return found
        if self.kind.files == 1:
            raise ConfigError(
                f"There is no file for the {split} texts. Set data.{split} to a file whose lines are {self.kind.line}."
            )
        raise ConfigError(
            f"There is no file for the {split} pairs. Set data.{split} to a file whose lines are {self.kind.line}, "
            f"or data.{split}_source and data.{split}_target to two parallel files, or data.task to a synthetic task."
        )

    def _check_use(self) -> None:
        """Refuse a setting that the task would silently ignore; a switch that is off asks for nothing."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        given = [name for name, (value, default) in values.items() if value != default and value is not False]
        for name in sorted({*unused(self.kind)} & {*given}):
            raise ConfigError(
                f"data.{name} belongs to {readers(name)}; got data.{name}={getattr(self, name)!r} with "
                f"data.task={self.task!r}, which does not use it. Remove data.{name}."
            )

    def _check_sizes(self) -> None:
        if self.max_length < self.min_length:
            raise ConfigError(
                f"data.max_length ({self.max_length}) must not be below data.min_length ({self.min_length}). "
                f"Set data.max_length to at least {self.min_length}."
            )
        if self.task in EQUAL_LENGTHS:
            self._check_symbols()

    def _check_symbols(self) -> None:
        """Refuse sources that are together more than a machine holds, though number and length are within bounds."""
        for name in MOST_PAIRS:
            size = getattr(self, name)
            if size * self.max_length > MOST_SYMBOLS:
                raise ConfigError(
                    f"data.{name} ({size}) times data.max_length ({self.max_length}), the symbols that a task may have "
                    f"to write, must be at most {MOST_SYMBOLS}; got {size * self.max_length}. "
                    f"Try {name}={max(1, MOST_SYMBOLS // self.max_length)}."
                )


def names_file(kind: object) -> bool:
    """Whether a kind of tokenizer is the path of a file: it ends with .json or has a slash."""
    return isinstance(kind, str) and (kind.endswith(".json") or "/" in kind or os.sep in kind)


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into tokens, and whether source and target use one vocabulary."""

    kind: str = "word"
    """word (split at white space), character, byte, or for real text byte-level subwords: bpe, wordpiece, unigram. Or
    the path of a tokenizer.json, of a run or of the `tokenizers` library."""
    source_kind: str | None = None
    """Kind for the source side alone; unset: same as `kind`. A different kind needs shared = false."""
    shared: bool = True
    """One vocabulary for source and target: fewer parameters, and their embeddings can be tied."""
    vocab_size: int = setting(8_000, 1, MOST_ENTRIES)
    """Size of a subword vocabulary with special tokens (8,000 suits 10 MB of text); other kinds keep all they meet."""
    min_count: int = setting(1, 1, MOST_COUNT)
    """Words or characters rarer than this in the training text become <unk>; word and character only."""

    def __post_init__(self) -> None:
        from glassformer.data.tokenizer import TOKENIZERS  # here, because a tokenizer's own signature names this class

        check(self, "tokenizer")
        for name, kind in (("kind", self.kind), ("source_kind", self.source_kind)):
            if kind is not None and not names_file(kind):
                lookup(TOKENIZERS, kind, f"tokenizer.{name}")
        if self.source_kind is not None and self.shared and self.source_kind != self.kind:
            raise ConfigError(
                f"A shared vocabulary has one kind, but tokenizer.source_kind is {self.source_kind!r} and "
                f"tokenizer.kind is {self.kind!r}. Set tokenizer.shared = false, or make the two kinds equal."
            )
        if self.min_count > 1 and not {"word", "character"} & {self.kind, self.source_kind}:
            raise ConfigError(
                f"tokenizer.min_count ({self.min_count}) drops rare words or characters, but tokenizer.kind is "
                f"{self.kind!r}, which does not use it. Set min_count=1, or tokenizer.kind = 'word'."
            )
        for kind in [each for each in (self.kind, self.source_kind) if each in TOKENIZERS]:
            if self.vocab_size < (least := TOKENIZERS[kind].least_vocab_size):
                raise ConfigError(
                    f"tokenizer.vocab_size is {self.vocab_size}, but a {kind} vocabulary has at least {least} entries: "
                    f"the bytes and the 6 special tokens. Set tokenizer.vocab_size to at least {least}, or use "
                    "tokenizer.kind = 'byte'."
                )


# Check the files that a data config names: none for tasks that read none, and one way to name those of a split.


def check_names(config: DataConfig) -> None:
    """Refuse empty names: an empty path is the current folder, and no column has an empty name."""
    files = [name for split in SPLITS for name in (split, f"{split}_source", f"{split}_target", TEXTS[split])]
    columns = ("text_column", "label_column", "source_field", "target_field")
    whats = dict.fromkeys(files, "file") | dict.fromkeys(columns, "column") | {"field": "field"}
    for name in [name for name in whats if getattr(config, name) == ""]:
        raise ConfigError(f"data.{name} must name a {whats[name]}; got ''. Give a name, or remove data.{name}.")


def check_files(config: DataConfig) -> None:
    """Refuse files that the task does not read, and two ways to name those of one split."""
    for split in SPLITS:
        tsv, source, target = config.files(split)
        given = [f"data.{name}" for name, path in named(split, tsv, source, target) if path is not None]
        if given and config.task == TEXT:
            raise ConfigError(
                f"data.task={TEXT!r} reads running text and no pairs, but {given[0]} is set. Set "
                f"data.{TEXTS[split]} to the text instead, or data.task to {PAIRS!r}."
            )
        if given and not config.kind.files:
            raise ConfigError(
                f"data.task={config.task!r} makes its own pairs and reads no files, but {given[0]} is set. "
                f"Remove {given[0]}, or set data.task = {PAIRS!r}."
            )
        if config.kind.files == 1 and (source or target):
            raise ConfigError(
                f"data.task={config.task!r} reads one file per split, but {given[0]} is set. Set data.{split} instead."
            )
        if tsv is not None and len(given) > 1:
            raise ConfigError(
                f"The {split} pairs come from one file or from two, but {' and '.join(given)} are set. "
                f"Keep data.{split} (one file with TABs), or both data.{split}_source and data.{split}_target."
            )
        if (source is None) != (target is None):
            missing = f"data.{split}_source" if source is None else f"data.{split}_target"
            raise ConfigError(f"Parallel files come in pairs: {given[0]} is set, {missing} is not. Set {missing}.")


def refuse_missing(config: DataConfig) -> None:
    """Raise `DataError` for a file to train on that does not exist; before torch is imported, which takes seconds."""
    for split in ("train", "dev"):
        for name in (split, f"{split}_source", f"{split}_target", TEXTS[split]):
            path = getattr(config, name)
            try:
                os.lstat(path or ".")
            except FileNotFoundError:
                raise no_such_file(path) from None
            except (OSError, ValueError):  # what else is wrong is told where it is read
                continue


def named(split: str, tsv: str | None, source: str | None, target: str | None) -> list[tuple[str, str | None]]:
    """The settings that may name the files of a split, and what each names."""
    return [(split, tsv), (f"{split}_source", source), (f"{split}_target", target)]


# Check the settings of running text, each by itself and together.


def check_text(config: DataConfig) -> None:
    """Refuse impossible settings. Errors: `ConfigError` naming the setting and the way out."""
    if config.task != TEXT:
        if config.layout in TEXT_LAYOUTS:
            raise ConfigError(
                f"data.layout={config.layout!r} is for running text; got data.task={config.task!r}. "
                f"Set data.task={TEXT!r}, or choose another layout."
            )
        return
    needed = lookup(OBJECTIVES, config.objective, "data.objective")
    if config.layout != needed:
        raise ConfigError(
            f"data.objective={config.objective!r} needs data.layout={needed!r}; got {config.layout!r}. "
            f"Set data.layout={needed!r}, or choose another data.objective."
        )
    lookup(dict.fromkeys(ORDERS), config.order, "data.order")
    check_numbers(config)
    check_documents(config)
    check_corruption(config)


def check_numbers(config: DataConfig) -> None:
    """Refuse sizes and shares outside their bounds."""
    Rule(2, MOST_WINDOW).check("data.window", config.window, 256, whole=True)
    if config.stride is not None and config.stride > config.window:
        raise ConfigError(
            f"data.stride must be at most data.window ({config.window}), or tokens between two windows would never be "
            f"scored; got {config.stride}. Try stride={config.window}."
        )
    has_spans = config.objective in CORRUPTIONS["mean_span"]  # otherwise its default may exceed a window
    if has_spans and not (1 <= config.mean_span <= config.window and math.isfinite(config.mean_span)):
        raise ConfigError(
            f"data.mean_span must be from 1 to data.window ({config.window}) tokens; got {config.mean_span}. "
            f"Try mean_span={min(3, config.window)}."
        )


def check_documents(config: DataConfig) -> None:
    """Refuse a document mask if the text or the layout has none."""
    if not config.document_mask:
        return
    if config.documents is False:
        raise ConfigError(
            "data.document_mask keeps attention inside each document, but data.documents=False joins all documents "
            "into one text. Set documents=True, or document_mask=False."
        )
    if config.layout not in TEXT_LAYOUTS:
        raise ConfigError(
            f"data.document_mask is only for the layouts {' and '.join(TEXT_LAYOUTS)}; got "
            f"data.layout={config.layout!r}. Set document_mask=False."
        )


def check_corruption(config: DataConfig) -> None:
    """Refuse a setting of another objective, which would be silently ignored."""
    for name, objectives in CORRUPTIONS.items():
        value = getattr(config, name)
        if config.objective not in objectives and value != getattr(type(config), name):
            raise ConfigError(
                f"data.{name} belongs to the {'objectives' if len(objectives) > 1 else 'objective'} "
                f"{', '.join(objectives)}; got data.{name}={value!r} with data.objective={config.objective!r}, which "
                f"does not use it. Remove data.{name}."
            )


# Check the settings of trajectories, each by itself and together.


def check_trajectories(config: DataConfig) -> None:
    """Refuse impossible settings. Errors: `ConfigError` naming the setting and the way out."""
    if config.task != TRAJECTORIES:
        return
    Rule(most=MOST_STEPS).check("data.window", config.window, 256, whole=True)
    for name in MOST_PAIRS:
        Rule(most=MOST_EPISODES).check(f"data.{name}", getattr(config, name), 1, whole=True)
    if config.train is None and config.dev_share != DataConfig.dev_share:
        raise ConfigError(
            f"data.dev_share holds out the end of data.train; got data.dev_share={config.dev_share} and no data.train. "
            "Remove data.dev_share, or set data.train to a file of episodes."
        )
    if config.environment == "":
        raise ConfigError("data.environment must name an environment; got ''. Give a name, or remove data.environment.")
    if config.train is None and config.environment != ROOMS:
        raise ConfigError(
            f"Only data.environment={ROOMS!r} makes its own episodes; got data.environment={config.environment!r} and "
            "no data.train. Set data.train to a file of episodes."
        )
