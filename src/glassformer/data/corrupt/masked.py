"""Masked tokens: some are hidden, and the model predicts them in place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassformer.data.corrupt.coins import Coins
from glassformer.data.tokens.vocabulary import BLANK, SPECIALS
from glassformer.data.tokens.whole_words import NO_WORD

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
