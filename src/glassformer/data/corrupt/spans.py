"""Hidden spans: the source has one <blank> for each, and the target is what they held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.data.corrupt.coins import Coins
from glassformer.data.corrupt.lengths import n_hidden, n_spans
from glassformer.data.tokens.vocabulary import BLANK, SEP, SPECIALS

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
