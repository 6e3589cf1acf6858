"""Load the text that a config names, train the tokenizers on it, and encode it as pairs of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.registry import lookup
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.kinds import LABEL, LABELLED, PAIRED, PAIRS
from glassformer.data.lines import no_such_file
from glassformer.data.pairs import Columns, Loaded, Pair, read_labelled, read_pairs, refuse_one_class
from glassformer.data.synthetic import make_pairs
from glassformer.data.tokens.tokenizer_file import tokenizer_of
from glassformer.data.tokens.vocabulary import Tokenizer
from glassformer.data.tokens.words import FIRST_LABEL, Labels


class Sequences(Sequence[list[int]]):
    """Reads like a list of lists of ids. Row i is `flat[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
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


Count = TypeVar("Count", int, NDArray[np.int64])


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


def load_pairs(config: DataConfig, split: str, seed: int = 0, labels: Labels | None = None) -> Loaded:
    """Load the pairs of "train", "dev" or "test". `seed` determines those of a synthetic task, not those of files.

    A pair of labelled text is (text, label); if `labels` are given, any other label is refused.
    """
    files = config.named_files(split)
    if config.task == LABELLED:
        columns = Columns(config.text_column, config.label_column, config.header, config.json)
        loaded = read_labelled(files[0], columns, config.skip_empty, None if labels is None else labels.entries)
        if split == "train":
            refuse_one_class(files[0], loaded.pairs)
        return loaded
    if config.task != PAIRS:
        return Loaded(make_pairs(config, split, seed), skipped=0)
    columns = Columns(config.source_field, config.target_field, config.header, config.json)
    return read_pairs(*files, columns=columns, skip_empty=config.skip_empty)


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
