"""Turn windows of running text into batches, by the name of the objective.

For the text a b c d e f, with the targets in brackets; _ is <blank>, and x any token:

next_token   a b c d e f     [b c d e f]
prefix       a b c d e f     [d e f], where all may read a b c
masked       a _ c x e f     [b, d], in their places
spans        a _ d _ f       [b c <sep> e], by a decoder
noise        a _ d _ e f     [a b c d e f], by a decoder
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Tensor
from glassformer.data.batch import Batch
from glassformer.data.corrupt.coins import Coins
from glassformer.data.corrupt.masked import masked
from glassformer.data.corrupt.noise import noise
from glassformer.data.corrupt.sentences import permuted
from glassformer.data.corrupt.spans import spans
from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import BOS, EOS

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Corruption:
    """Settings of the objectives; each objective ignores those of the others."""

    vocab_size: int
    mask_share: float = 0.15
    """Fraction of the tokens that are hidden: masked, spans and noise."""
    mean_span: float = 3.0
    """Mean tokens of a hidden span: spans and noise."""
    words_of: Callable[[Iterable[int]], list[int]] | None = None
    """The tokenizer's `words_of`, with which masked hides whole words; None: tokens."""
    sentences: NDArray[np.bool_] | None = None
    """The table of `sentence_ends`, with which noise shuffles the sentences of its source; None: it does not."""
    document_mask: bool = False
    """A token does not read other documents, each of which starts with <bos>: next_token, prefix and masked."""


def batch_of_windows(
    objective: str,
    windows: Sequence[Ids],
    how: Corruption,
    *,
    seed: int,
    step: int,
    rows: Sequence[int] | None = None,
) -> Batch:
    """Make the batch of an objective from windows of ids, one per row.

    next_token and prefix predict all tokens but the first, so their windows have one more than the model reads. What is
    drawn for a row depends only on (seed, step, row); `rows` are the row numbers in the whole batch, for a process that
    has a part of it (None: from 0 on). Errors: `ConfigError` for an unknown name, `DataError` for no tokens.
    """
    build = lookup(BATCHES, objective, "data.objective")
    numbers = range(len(windows)) if rows is None else rows
    return build([np.asarray(each, np.int64) for each in windows], how, (Coins(seed, step, row) for row in numbers))


def prefix_length(n: int, coins: Coins) -> int:
    """How many of n tokens are given: any number that leaves one to predict (Raffel et al. 2020, section 3.2.3)."""
    return 1 + int(coins.below(n - 1, 1)[0]) if n > 1 else n


def _next_token(windows: list[Ids], how: Corruption, coins: Iterable[Coins]) -> Batch:
    return Batch(*_stacked(windows), **_documents(windows, how))


def _prefix(windows: list[Ids], how: Corruption, coins: Iterable[Coins]) -> Batch:
    lengths = [prefix_length(len(ids), own) for ids, own in zip(windows, coins, strict=True)]
    return Batch(*_stacked(windows), prefix=torch.tensor(lengths), **_documents(windows, how))


def _masked(windows: list[Ids], how: Corruption, coins: Iterable[Coins]) -> Batch:
    made: list[tuple[Ids, NDArray[np.bool_]]] = []
    for ids, own in zip(windows, coins, strict=True):
        words = None if how.words_of is None else np.asarray(how.words_of(ids.tolist()), np.int64)
        made.append(masked(ids, own, how.vocab_size, how.mask_share, words))
    tokens, keep = _stacked([read for read, _ in made])
    labels, _ = _stacked(windows)
    asked, _ = _stacked([chosen.astype(np.int64) for _, chosen in made])
    return Batch(tokens, keep, labels=labels, label_keep=asked == 1, **_documents(windows, how))


def _spans(windows: list[Ids], how: Corruption, coins: Iterable[Coins]) -> Batch:
    return _pairs(spans(ids, own, how.mask_share, how.mean_span) for ids, own in zip(windows, coins, strict=True))


def _noise(windows: list[Ids], how: Corruption, coins: Iterable[Coins]) -> Batch:
    made: list[tuple[Ids, Ids]] = []
    for ids, own in zip(windows, coins, strict=True):
        shuffled = ids if how.sentences is None else permuted(ids, how.sentences, own)
        made.append((noise(shuffled, own, how.mask_share, how.mean_span)[0], ids))
    return _pairs(made)


def _pairs(made: Iterable[tuple[Ids, Ids]]) -> Batch:
    both = list(made)
    return Batch.pairs([source.tolist() for source, _ in both], [target.tolist() for _, target in both])


def _stacked(rows: list[Ids]) -> tuple[Tensor, Bool[Tensor, "B T"] | None]:
    """Like `pad`, but without a look at each id for rows of one length, which windows mostly have."""
    if len({len(row) for row in rows}) == 1 and len(rows[0]):
        return torch.from_numpy(np.stack(rows)), None
    return pad([row.tolist() for row in rows])


def _documents(windows: list[Ids], how: Corruption) -> dict[str, Any]:
    """The number of each token's document within its window: one begins with <bos>, or behind an <eos> without it."""
    begins = [(ids == BOS) | np.append(False, ids[:-1] == EOS) for ids in windows] if how.document_mask else []
    return {"documents": _stacked([each.cumsum() for each in begins])[0]} if how.document_mask else {}


BATCHES: dict[str, Callable[[list[Ids], Corruption, Iterable[Coins]], Batch]] = {
    "next_token": _next_token,
    "prefix": _prefix,
    "masked": _masked,
    "spans": _spans,
    "noise": _noise,
}
"""The functions that make a batch from windows of ids and the random numbers of each row."""
