"""The settings of the data: what to learn from, and how text becomes token ids. Imports no torch."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# A row does not know the class of the config that it looks at.

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from glassformer.base.contradictions import Contradiction, differs, refuse
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
from glassformer.data.synthetic import TASKS
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
    """Pairs, labelled and tagged files: the first line is a header (implied if a column is given by name); unset: it is
    not, and refused if it looks like one."""
    json: bool | None = None
    """Files hold JSON: an object on each line, or an array of them; unset: .jsonl, .ndjson and .jsonlines do, and what
    only looks like it is refused unless a field is named."""
    skip_empty: bool = False
    """Skip and count pairs with an empty side, empty documents, blank lines and null. Off: they are an error, usually a
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
    layout: str = setting(PAIRED, known=LAYOUTS)
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
    order: str = setting(ORDERS[0], known=ORDERS)
    """Training windows at "random" positions, or "sequential", one after the other."""
    documents: bool | None = None
    """Put each document between <bos> and <eos>; off: one running text. Unset: on if there are several documents."""
    document_mask: bool = False
    """Attention never crosses the boundary of a document."""
    objective: str = setting(next(iter(OBJECTIVES)), known=OBJECTIVES)
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
        kind_of(self.task)
        refuse(self, NAMES, "data")
        if self.task == TEXT:
            Rule(2, MOST_WINDOW).check("data.window", self.window, 256, whole=True)
        if self.task == TRAJECTORIES:
            Rule(most=MOST_STEPS).check("data.window", self.window, 256, whole=True)
            for name in MOST_PAIRS:
                Rule(most=MOST_EPISODES).check(f"data.{name}", getattr(self, name), 1, whole=True)
        refuse(self, DATA, "data")

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
        refuse(self, TOKENIZER, "tokenizer")
        for kind in [each for each in (self.kind, self.source_kind) if each in TOKENIZERS]:
            if self.vocab_size < (least := TOKENIZERS[kind].least_vocab_size):
                raise ConfigError(
                    f"tokenizer.vocab_size is {self.vocab_size}, but a {kind} vocabulary has at least {least} entries: "
                    f"the bytes and the 6 special tokens. Set tokenizer.vocab_size to at least {least}, or use "
                    "tokenizer.kind = 'byte'."
                )


def refuse_missing(config: DataConfig) -> None:
    """Raise `DataError` for a file to train on that does not exist; before torch is imported, which takes seconds."""
    for split in ("train", "dev"):
        for name in (split, f"{split}_source", f"{split}_target", TEXTS[split]):
            path = getattr(config, name)
            try:
                os.lstat(path or ".")
            except FileNotFoundError:
                raise no_such_file(path) from None
            except (OSError, ValueError):  # what else is wrong is reported where it is read
                continue


# What contradicts what. A row sees a config by the names of its settings.


def has(c: DataConfig, name: str) -> bool:
    """Whether a setting asks for something; a switch that is off does not."""
    return differs(c, name) and getattr(c, name) is not False


def of_split(c: DataConfig, split: str) -> list[str]:
    """The settings that name the files of a split."""
    return [name for name in files_of(split) if getattr(c, name) is not None]


def files_of(split: str) -> tuple[str, str, str]:
    """The settings that may name the files of a split: one with pairs, or one for each side."""
    return split, f"{split}_source", f"{split}_target"


NAMES = (
    *(
        Contradiction(
            ("task", "layout"),
            lambda c, its=its: (its is c.kind) != (c.layout in its.layouts),
            f"{{at}}task={name!r} and {{at}}layout={' or '.join(map(repr, its.layouts))} only work together",
            "Set both, or neither.",
        )
        for name, its in KINDS.items()
        if its.layouts
    ),
    *(
        Contradiction(
            (name,),
            lambda c, name=name: getattr(c, name) == "",  # an empty path would be the current folder
            f"{{at}}{name} must name {what}",
            f"Give a name, or remove {{at}}{name}.",
        )
        for what, names in {
            "a file": [name for split in SPLITS for name in (*files_of(split), TEXTS[split])],
            "a column": ("text_column", "label_column", "source_field", "target_field"),
            "a field": ("field",),
            "an environment": ("environment",),
        }.items()
        for name in names
    ),
)
"""What names nothing, and layouts of other tasks."""
FILES = (
    *(
        Contradiction(
            (name,),
            lambda c, name=name: getattr(c, name) is not None and c.task == TEXT,
            f"{{at}}task={TEXT!r} reads running text and no pairs, but {{at}}{name} is set",
            f"Set {{at}}{TEXTS[split]} to the text instead, or {{at}}task to {PAIRS!r}.",
        )
        for split in SPLITS
        for name in files_of(split)
    ),
    *(
        Contradiction(
            (name,),
            lambda c, name=name: getattr(c, name) is not None and not c.kind.files,
            f"{{at}}task={{c.task!r}} makes its own pairs and reads no files, but {{at}}{name} is set",
            f"Remove {{at}}{name}, or set {{at}}task = {PAIRS!r}.",
        )
        for split in SPLITS
        for name in files_of(split)
    ),
    *(
        Contradiction(
            (name,),
            lambda c, name=name: getattr(c, name) is not None and c.kind.files == 1,
            f"{{at}}task={{c.task!r}} reads one file per split, but {{at}}{name} is set",
            f"Set {{at}}{split} instead.",
        )
        for split in SPLITS
        for name in files_of(split)[1:]
    ),
    *(
        Contradiction(
            (split,),
            lambda c, split=split: split in (given := of_split(c, split)) and len(given) > 1,
            lambda c, split=split: (
                f"The {split} pairs come from one file or from two, but "
                f"{' and '.join(f'{{at}}{name}' for name in of_split(c, split))} are set"
            ),
            f"Keep {{at}}{split} (one file with TABs), or both {{at}}{split}_source and {{at}}{split}_target.",
        )
        for split in SPLITS
    ),
    *(
        Contradiction(
            (side,),
            lambda c, side=side, other=other: getattr(c, side) is not None and getattr(c, other) is None,
            f"Parallel files come in pairs: {{at}}{side} is set, {{at}}{other} is not",
            f"Set {{at}}{other}.",
        )
        for split in SPLITS
        for _, source, target in [files_of(split)]
        for side, other in ((source, target), (target, source))
    ),
)
"""Files that the task does not read, and two ways to name those of one split."""
DATA = (
    *FILES,
    *(
        Contradiction(
            (name, "task"),
            lambda c, name=name: has(c, name) and name in unused(c.kind),
            f"{{at}}{name} belongs to {readers(name)}",
            f"Remove {{at}}{name}.",
        )
        for name in sorted({name for kind in KINDS.values() for name in kind.reads})
    ),
    Contradiction(
        ("max_length",),
        lambda c: c.max_length < c.min_length,
        "{at}max_length ({c.max_length}) must not be below {at}min_length ({c.min_length})",
        "Set {at}max_length to at least {c.min_length}.",
    ),
    *(
        Contradiction(
            (name,),
            lambda c, name=name: c.task in EQUAL_LENGTHS and getattr(c, name) * c.max_length > MOST_SYMBOLS,
            lambda c, name=name: (
                f"{{at}}{name} ({{c.{name}}}) times {{at}}max_length ({{c.max_length}}), the symbols that a task may "
                f"have to write, must be at most {MOST_SYMBOLS}; got {getattr(c, name) * c.max_length}"
            ),
            lambda c, name=name: f"Try {name}={max(1, MOST_SYMBOLS // c.max_length)}.",
        )
        for name in MOST_PAIRS
    ),
    Contradiction(
        ("layout", "task"),
        lambda c: c.layout in TEXT_LAYOUTS and c.task != TEXT,
        "{at}layout={c.layout!r} is for running text",
        f"Set {{at}}task={TEXT!r}, or choose another layout.",
    ),
    *(
        Contradiction(
            ("layout",),
            lambda c, requested=(objective, layout): (
                c.task == TEXT and c.objective == requested[0] and c.layout != requested[1]
            ),
            f"{{at}}objective={objective!r} needs {{at}}layout={layout!r}",
            f"Set {{at}}layout={layout!r}, or choose another {{at}}objective.",
        )
        for objective, layout in OBJECTIVES.items()
    ),
    Contradiction(
        ("stride",),
        lambda c: c.stride is not None and c.stride > c.window,
        "{at}stride must be at most {at}window ({c.window}), or tokens between two windows would never be scored",
        "Try stride={c.window}.",
    ),
    Contradiction(
        ("mean_span",),
        lambda c: (
            c.task == TEXT
            and c.objective in CORRUPTIONS["mean_span"]  # otherwise its default may exceed a window
            and not (1 <= c.mean_span <= c.window and math.isfinite(c.mean_span))
        ),
        "{at}mean_span must be from 1 to {at}window ({c.window}) tokens",
        lambda c: f"Try mean_span={min(3, c.window)}.",
    ),
    Contradiction(
        ("document_mask", "documents"),
        lambda c: c.document_mask and c.documents is False,
        "{at}document_mask keeps attention inside each document, but {at}documents={c.documents} joins all documents "
        "into one text",
        "Set documents=True, or document_mask=False.",
    ),
    Contradiction(
        ("layout",),
        lambda c: c.document_mask and c.layout not in TEXT_LAYOUTS,
        f"{{at}}document_mask is only for the layouts {' and '.join(TEXT_LAYOUTS)}",
        "Set document_mask=False.",
    ),
    *(
        Contradiction(
            (name, "objective"),
            lambda c, name=name, its=its: differs(c, name) and c.objective not in its,
            f"{{at}}{name} belongs to the {'objectives' if len(its) > 1 else 'objective'} {', '.join(its)}",
            f"Remove {{at}}{name}.",
        )
        for name, its in CORRUPTIONS.items()
    ),
    Contradiction(
        ("dev_share",),
        lambda c: c.task == TRAJECTORIES and c.train is None and differs(c, "dev_share"),
        "{at}dev_share holds out the end of {at}train, which is not set",
        "Remove {at}dev_share, or set {at}train to a file of episodes.",
    ),
    Contradiction(
        ("environment", "train"),
        lambda c: c.task == TRAJECTORIES and c.train is None and c.environment != ROOMS,
        f"Only {{at}}environment={ROOMS!r} makes its own episodes",
        "Set {at}train to a file of episodes.",
    ),
)
"""Settings of the data."""
TOKENIZER = (
    Contradiction(
        ("source_kind",),
        lambda c: c.source_kind is not None and c.shared and c.source_kind != c.kind,
        "A shared vocabulary has one kind, but {at}source_kind is {c.source_kind!r} and {at}kind is {c.kind!r}",
        "Set {at}shared = false, or make the two kinds equal.",
    ),
    Contradiction(
        ("min_count",),
        lambda c: c.min_count > 1 and not {"word", "character"} & {c.kind, c.source_kind},
        "{at}min_count ({c.min_count}) drops rare words or characters, but {at}kind is {c.kind!r}, which does not use "
        "it",
        "Set min_count=1, or {at}kind = 'word'.",
    ),
)
"""How text becomes tokens."""
