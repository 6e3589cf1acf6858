"""Load the text that a config names, train the tokenizers on it, and encode it as pairs of ids. Imports no torch."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast, overload

from glassformer.base.errors import DataError
from glassformer.base.registry import lookup
from glassformer.data.config import SPLITS, DataConfig, TokenizerConfig, names_file
from glassformer.data.kinds import LABEL, LABELLED, PAIRED, PAIRS
from glassformer.data.labelled import read_labelled, refuse_one_class
from glassformer.data.lines import no_such_file
from glassformer.data.pairs import Loaded, Pair, read_pairs
from glassformer.data.rows import Columns
from glassformer.data.synthetic import TASKS, Sources
from glassformer.data.tokenizer import TOKENIZERS, tokenizer_from_json
from glassformer.data.tokens.vocabulary import FIRST_LABEL, SPECIALS, THE_FILE, Cuts, Labels, Tokenizer, read_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Count = TypeVar("Count", int, NDArray[np.int64])


class Sequences(Sequence[list[int]]):
    """Reads like a list of lists of ids. Row i is `flat[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        import numpy as np  # here, so that `--help` does not wait for it

        rows = list(rows)
        self.lengths: NDArray[np.int64] = np.fromiter(map(len, rows), np.int64, len(rows))
        self.offsets: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        self.flat: NDArray[np.int32] = np.fromiter(chain.from_iterable(rows), np.int32, int(self.offsets[-1]))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]  # a range knows negative indices and raises IndexError, which ends iteration
        return self.flat[self.offsets[row] : self.offsets[row + 1]].tolist()


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides; the same object if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @property
    def labels(self) -> list[str]:
        """A classifier's labels, in the order of its probabilities."""
        return self.target.tokens(range(FIRST_LABEL, self.target.vocab_size))


def places(layout: str, source: Count, target: Count) -> tuple[Count, Count]:
    """How many places these numbers of ids take on the source side and in `tokens` of a `Batch`, with special tokens.

    x <eos> and <bos> y <eos>; or, in one sequence without a source side, x <sep> y, or <bos> x for a label.
    """
    sides = {
        "encoder-decoder": (source + 1, target + 2),
        "encoder": (source * 0, source + 1 + target),
        LABEL: (source * 0, source + 1),
    }
    return lookup(sides, layout, "data.layout")


@dataclass(frozen=True)
class Encoded:
    """Pairs as ids, without special tokens. `source[i]` and `target[i]` are lists of ids."""

    source: Sequences
    target: Sequences

    def __len__(self) -> int:
        return len(self.source)

    def lengths(self, layout: str = PAIRED) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many places each sample takes in a batch of this layout, on the source side and in `tokens`.

        Special tokens count, see `places`.
        """
        return places(layout, self.source.lengths, self.target.lengths)

    def digest(self) -> str:
        """SHA-256 of all ids and of the ends of the sequences."""
        digest = hashlib.sha256()
        for side in (self.source, self.target):
            digest.update(side.flat.tobytes())
            digest.update(side.offsets.tobytes())
        return digest.hexdigest()


def columns_of(config: DataConfig) -> Columns:
    """The columns that the settings choose."""
    fields = (config.source_field, config.target_field)
    chosen = fields if config.task == PAIRS else (config.text_column, config.label_column)
    return Columns(*chosen, config.header, config.json)


def load_pairs(config: DataConfig, split: str, seed: int = 0, labels: Labels | None = None) -> Loaded:
    """Load the pairs of "train", "dev" or "test". `seed` determines those of a synthetic task, not those of files.

    A pair of labelled text is (text, label); if `labels` are given, any other label is refused.
    """
    files = config.named_files(split)
    if config.task == LABELLED:
        loaded = read_labelled(
            files[0], columns_of(config), config.skip_empty, None if labels is None else labels.entries
        )
        if split == "train":
            refuse_one_class(files[0], loaded.pairs)
        return loaded
    if config.task != PAIRS:
        return Loaded(make_pairs(config, split, seed), skipped=0)
    return read_pairs(*files, columns=columns_of(config), skip_empty=config.skip_empty)


def make_pairs(config: DataConfig, split: str, seed: int) -> list[Pair]:
    """Make the pairs of the synthetic task that `config` names, as many as it says for this split."""
    task, of = lookup(TASKS, config.task, "data.task"), Sources(config.symbols, config.min_length, config.max_length)
    sizes: dict[str, int] = {each: getattr(config, f"{each}_size") for each in SPLITS}
    return task.pairs(config.task, of, split, lookup(sizes, split, "split"), seed)


def refuse_missing_files(config: DataConfig, splits: Sequence[str]) -> None:
    """Refuse splits without a file, or with one that does not exist, before any of them is read.

    Errors: `ConfigError` and `DataError`, as reading raises them.
    """
    for path in [path for split in splits for path in config.named_files(split)]:
        if not Path(path).exists():
            raise no_such_file(path)


def build_tokenizers(config: TokenizerConfig, pairs: Sequence[Pair], *, labelled: bool = False) -> Tokenizers:
    """Train tokenizers on `pairs`, or read them: one on the texts of both sides if shared, else one for each side.

    The target tokenizer of labelled text is its label set.
    """
    if not pairs:
        raise DataError("A vocabulary is learned from training pairs, but there are none. Give at least one pair.")
    source_kind = config.source_kind or config.kind
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if labelled:
        return Tokenizers(tokenizer_of(source_kind, lambda _: sources, config), Labels(sorted(set(targets))))
    if config.shared:
        both = tokenizer_of(config.kind, lambda _: sources + targets, config)
        return Tokenizers(both, both)
    source = tokenizer_of(source_kind, lambda _: sources, config)
    return Tokenizers(source, tokenizer_of(config.kind, lambda _: targets, config))


def encode_pairs(pairs: Sequence[Pair], tokenizers: Tokenizers) -> Encoded:
    """Encode each side with its own tokenizer."""
    return Encoded(
        Sequences(tokenizers.source.encode_all([pair.source for pair in pairs])),
        Sequences(tokenizers.target.encode_all([pair.target for pair in pairs])),
    )


# The tokenizer of a run: learned from its training text, or read from a file of the user's own.

LOG = logging.getLogger(__name__)
LARGEST = 2**28
"""The most bytes of a tokenizer's file; the vocabularies of published models have up to 40 million."""
OTHER = (
    "Give the tokenizer.json of a run, or one of byte-level BPE or of SentencePiece; or let a vocabulary be learned "
    "from your text, for example with tokenizer.kind='bpe'."
)
"""The remedy for a file that cannot be used."""


def tokenizer_of(kind: str, texts: Callable[[Cuts], Iterable[str]], config: TokenizerConfig) -> Tokenizer:
    """A tokenizer of a kind, learned from texts that are cut as it allows; or the one in the file that `kind` names."""
    if names_file(kind):
        return read_tokenizer_file(Path(kind).expanduser())
    made = TOKENIZERS[kind]
    return made.train(texts(made.cuts), config)


def read_tokenizer_file(path: Path) -> Tokenizer:
    """Read a tokenizer.json: that of a run, or one of another library with our special tokens in place of its own.

    Errors: `DataError` naming the file, and the setting that cannot be taken over.
    """
    from glassformer.data.tokens.exported import AGAIN, ANOTHER, adopt  # here: it loads the library

    if not path.exists():
        raise no_such_file(path)
    if path.is_dir():
        raise DataError(f"tokenizer.kind names a file; {path} is a folder. Give the tokenizer.json in it.")
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path}: a tokenizer's file has at most {LARGEST:,} bytes; this one has more. {OTHER}")
    try:
        text = path.read_text("utf-8")
        if is_ours(read_json(text)):
            found = tokenizer_from_json(text)
        else:
            found, _, left_out = adopt(text, {})
            if left_out:
                LOG.info(f"{path}: {len(left_out)} special tokens are not used, such as {left_out[0]}")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. {OTHER}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is no tokenizer.json: it is not UTF-8 text. {OTHER}") from None
    except DataError as error:
        reason = str(error).removesuffix(THE_FILE).removesuffix(AGAIN).removesuffix(ANOTHER)
        raise DataError(f"{path}: {reason.rstrip()} {OTHER}") from None
    if isinstance(found, Labels):
        raise DataError(f"{path} holds no vocabulary of texts, but {type(found).__name__.lower()}. {OTHER}")
    if found.vocab_size < len(SPECIALS) + 2:
        least = f"a vocabulary has at least two tokens besides the {len(SPECIALS)} special ones"
        raise DataError(f"{path}: {least}; this one has {found.vocab_size - len(SPECIALS)}. {OTHER}")
    return found


def is_ours(record: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json is one that `to_json` wrote, not of another library: our special tokens come first."""
    added = record.get("added_tokens")
    first = cast("list[object]", added)[: len(SPECIALS)] if isinstance(added, list) else []
    names = [cast("dict[str, object]", each).get("content") for each in first if isinstance(each, dict)]
    return "kind" in record or names == [*SPECIALS]
