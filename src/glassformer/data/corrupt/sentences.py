"""Shuffle sentences, as BART does: they are found by the marks that end them, in the tokenizer's output."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import DataError
from glassformer.data.corrupt.coins import Coins
from glassformer.data.tokens.vocabulary import SPECIALS, Tokenizer

Ids = NDArray[np.int64]
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
