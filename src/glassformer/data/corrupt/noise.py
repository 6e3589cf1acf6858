"""Noise that the model removes: the source has gaps of unknown length, and the target is the whole text."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from glassformer.data.corrupt.coins import Coins
from glassformer.data.corrupt.lengths import n_hidden
from glassformer.data.corrupt.spans import begins_of, covered, first_of
from glassformer.data.tokens.vocabulary import BLANK, SPECIALS

Ids = NDArray[np.int64]


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
