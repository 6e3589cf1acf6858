"""Sentences in another order, as BART has them: found by the marks that end one, in what the tokenizer writes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.data.corrupt.coins import Coins
from glassformer.data.tokens.vocabulary import SPECIALS, Tokenizer
from glassformer.foundation.errors import DataError

Ids = NDArray[np.int64]
ENDS = (".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f")
"""Full stop, exclamation and question mark, and the like of Chinese, Hindi and Arabic."""


def sentence_ends(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """[V]: True for tokens whose text ends with a mark that ends a sentence. Errors: `DataError` where none does."""
    ids = range(len(SPECIALS), tokenizer.vocab_size)
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    ends[len(SPECIALS) :] = [tokenizer.decode([id]).rstrip().endswith(ENDS) for id in ids]
    if not ends.any():
        raise DataError(
            f"Sentences are found by the marks that end them, such as {' '.join(ENDS[:3])}, and no token of this "
            "vocabulary has one. Set data.permute_sentences = false."
        )
    return ends


def permuted(ids: Ids, ends: NDArray[np.bool_], coins: Coins) -> Ids:
    """The sentences of each document in random order, each order as likely (Lewis et al. 2020, section 2.2).

    A sentence goes up to the last of the marks in a row that end it. Special tokens stay in their places.

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
