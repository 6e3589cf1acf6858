"""Turn windows of running text into batches, by the name of the objective.

For the text a b c d e f, with the targets in brackets; _ is <blank>, and x any token:

next_token   a b c d e f     [b c d e f]
prefix       a b c d e f     [d e f], where all may read a b c
masked       a _ c x e f     [b, d], in their places
spans        a _ d _ f       [b c <sep> e], by a decoder
noise        a _ d _ e f     [a b c d e f], by a decoder
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.base.registry import lookup
from glassformer.base.shapes import Bool, Tensor
from glassformer.data.batch import Batch, pad
from glassformer.data.corrupt_lengths import n_hidden, n_spans
from glassformer.data.tokens.vocabulary import BLANK, BOS, EOS, NO_WORD, SEP, SPECIALS, Tokenizer


class Coins:
    """Uniform numbers and choices from raw Philox output, which numpy keeps the same in all versions."""

    def __init__(self, seed: int, step: int, row: int) -> None:
        # The key separates these numbers from those that chose the windows, which depend on (seed, step).
        self._raw = np.random.Philox(np.random.SeedSequence((seed, step, row), spawn_key=(1,)))

    def uniform(self, n: int) -> NDArray[np.floating]:
        """[n] numbers, each at least 0 and below 1."""
        return (self._raw.random_raw(n) >> np.uint64(11)) * 2.0**-53

    def below(self, limit: int, n: int) -> NDArray[np.int64]:
        """[n] whole numbers, each at least 0 and below `limit`."""
        return (self.uniform(n) * limit).astype(np.int64)

    def some_of(self, n: int, count: int) -> NDArray[np.int64]:
        """`count` different numbers below n, in ascending order; all such sets are equally likely."""
        return np.sort(np.argsort(self._raw.random_raw(n), kind="stable")[:count])


HIDDEN, REPLACED = 0.8, 0.1
"""Of the chosen tokens, the fraction that becomes <blank> and the fraction that becomes any token; the rest stays."""


def masked(
    ids: NDArray[np.int64],
    coins: Coins,
    vocab_size: int,
    share: float = 0.15,
    words: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The tokens to read, and True where the model must predict the token of `ids` (Devlin et al. 2019, section 3.1).

    Each token is chosen with probability `share`; if none is, one of them is. Of the chosen ones 80 % become <blank>,
    10 % a token drawn from the whole vocabulary, possibly the right one, and 10 % stay. Special tokens are never chosen
    and never drawn. With `words`, the number of each token's word, whole words are chosen instead of tokens (the
    authors' later "whole word masking"), but never `NO_WORD`; what becomes of their tokens is drawn for each token.
    """
    unit = np.arange(len(ids)) if words is None else words
    text = (ids >= len(SPECIALS)) & (unit != NO_WORD)
    chosen = (coins.uniform(len(ids))[unit] < share) & text
    if not chosen.any() and text.any():
        chosen = (unit == unit[text][coins.below(int(text.sum()), 1)]) & text
    fate, drawn = coins.uniform(len(ids)), coins.below(vocab_size - len(SPECIALS), len(ids)) + len(SPECIALS)
    read = np.where(chosen & (fate < HIDDEN), BLANK, ids)
    return np.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), drawn, read), chosen


Ids = NDArray[np.int64]


def spans(ids: Ids, coins: Coins, share: float = 0.15, mean: float = 3.0) -> tuple[Ids, Ids]:
    """Source and target of span corruption (Raffel et al. 2020, figure 2 and section 3.3.4).

        text     thank you for inviting me to your party last week
        source   thank you <blank> me to your party <blank> week
        target   for inviting <sep> last

    `share` of the tokens is hidden in spans of `mean` tokens on average; all ways to cut and to place them are equally
    likely, provided that there is a kept token between any two. T5 numbers its sentinels and writes one before each
    span of the target; here the order says which span belongs to which <blank>, so that any vocabulary will do as it
    is. T5 also hides the end of each text, because its kept and hidden parts alternate from the first token to the
    last. Special tokens stay, and split a span in two.
    """
    text = ids >= len(SPECIALS)
    n = int(text.sum())
    if n == 0:
        return ids, ids[:0]
    hidden = n_hidden(n, share)
    count = n_spans(n, hidden, mean)
    lengths = np.diff(coins.some_of(hidden - 1, count - 1) + 1, prepend=0, append=hidden)
    mask = np.zeros(len(ids), np.bool_)
    mask[text] = covered(lengths, begins_of(lengths, n, coins), n)
    begins = first_of(mask)
    return np.where(begins, BLANK, ids)[begins | ~mask], np.insert(ids[mask], np.flatnonzero(begins[mask])[1:], SEP)


def begins_of(lengths: Ids, n: int, coins: Coins) -> Ids:
    """[spans]: where spans of these lengths start among n tokens, with a kept token between any two."""
    kept = n - int(lengths.sum())
    return coins.some_of(kept + 1, len(lengths)) + lengths.cumsum() - lengths


def covered(lengths: Ids, begins: Ids, n: int) -> NDArray[np.bool_]:
    """[n]: True within a span."""
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, begins, 1)
    np.add.at(change, begins + lengths, -1)
    return change.cumsum()[:-1] > 0


def first_of(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[T]: True at the first token of each run."""
    first = mask.copy()
    first[1:] &= ~mask[:-1]
    return first


ENDS = (".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f")
"""Full stop, exclamation mark and question mark, and those of Chinese, Hindi and Arabic."""


def sentence_ends(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """[V]: True for tokens whose text ends with a mark that ends a sentence. Errors: `DataError` if there are none."""
    ids = range(len(SPECIALS), tokenizer.vocab_size)
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    ends[len(SPECIALS) :] = [tokenizer.decode([id]).rstrip().endswith(ENDS) for id in ids]
    if not ends.any():
        raise DataError(
            f"data.permute_sentences finds sentences by the marks that end them, such as {' '.join(ENDS[:3])}, but no "
            "token of this vocabulary ends with one. Set data.permute_sentences = false."
        )
    return ends


def permuted(ids: Ids, ends: NDArray[np.bool_], coins: Coins) -> Ids:
    """Put the sentences of each document in random order, all orders equally likely (Lewis et al. 2020, section 2.2).

    A sentence ends with the last of consecutive marks. Special tokens stay in their places.

        text       We met. It rained! So we left.
        permuted   It rained! We met. So we left.
    """
    special = ids < len(SPECIALS)
    pieces: list[Ids] = []
    for stretch in np.split(ids, np.flatnonzero(special[1:] | special[:-1]) + 1):
        closes = ends[stretch]
        sentences = np.split(stretch, np.flatnonzero(closes[:-1] & ~closes[1:]) + 1)
        pieces += [sentences[place] for place in np.argsort(coins.uniform(len(sentences)), kind="stable")]
    return np.concatenate(pieces)


def noise(ids: Ids, coins: Coins, share: float = 0.15, mean: float = 3.0) -> tuple[Ids, Ids]:
    """Source and target of text infilling (Lewis et al. 2020, section 2.2).

        text     thank you for inviting me to your party last week
        source   thank you <blank> me to <blank> your party last <blank>
        target   thank you for inviting me to your party last week

    `share` of the tokens is hidden (0.3 in the paper), in spans whose lengths are drawn from a Poisson distribution
    with that `mean`; an empty span is a <blank> where nothing is missing. Special tokens stay, and split a span in two.
    There is a kept token between any two spans: if too few are kept for that, spans are given up, see `fitting`.
    """
    text = np.flatnonzero(ids >= len(SPECIALS))
    n = len(text)
    if n == 0:
        return ids, ids
    lengths = poisson_lengths(n_hidden(n, share), mean, coins)
    lengths = fitting(lengths, n - int(lengths.sum()) + 1, coins)
    begins = begins_of(lengths, n, coins)
    mask = np.zeros(len(ids), np.bool_)
    mask[text] = covered(lengths, begins, n)
    empty = np.append(text, len(ids))[begins[lengths == 0]]
    first = first_of(mask)
    stays = first | ~mask
    source = np.where(first, BLANK, ids)[stays]
    return np.insert(source, np.append(0, stays.cumsum())[empty], BLANK), ids


def fitting(lengths: Ids, places: int, coins: Coins) -> Ids:
    """At most `places` lengths with the same sum: empty spans are dropped first, then neighbours become one span."""
    if len(lengths) <= places:
        return lengths
    full, empty = np.flatnonzero(lengths), np.flatnonzero(lengths == 0)
    if len(full) <= places:  # the empty ones to keep are drawn, as the first would all be near the start of the text
        return lengths[np.sort(np.append(full, empty[coins.some_of(len(empty), places - len(full))]))]
    return np.add.reduceat(lengths[full], np.arange(places) * len(full) // places)


def poisson_lengths(total: int, mean: float, coins: Coins) -> Ids:
    """Draw lengths from a Poisson distribution until they reach `total`; the last one is shortened to it."""
    most = math.ceil(mean + 10 * math.sqrt(mean) + 10)  # beyond it lies less than 1e-12
    chances = np.exp([k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(most)]).cumsum()
    drawn = np.zeros(0, np.int64)
    while drawn.sum() < total:
        drawn = np.append(drawn, np.searchsorted(chances, coins.uniform(total), side="right"))
    reached = drawn.cumsum()
    last = int(np.searchsorted(reached, total))
    drawn[last] -= reached[last] - total
    return drawn[: last + 1]


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
    requested, _ = _stacked([chosen.astype(np.int64) for _, chosen in made])
    return Batch(tokens, keep, labels=labels, label_keep=requested == 1, **_documents(windows, how))


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
    "next_token": lambda windows, how, coins: Batch(*_stacked(windows), **_documents(windows, how)),
    "prefix": _prefix,
    "masked": _masked,
    "spans": lambda windows, how, coins: _pairs(
        spans(ids, own, how.mask_share, how.mean_span) for ids, own in zip(windows, coins, strict=True)
    ),
    "noise": _noise,
}
"""The functions that make a batch from windows of ids and the random numbers of each row."""
