"""Which tokens begin a word: read off what the tokenizer writes, so that every kind of tokenizer has an answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.data.vocabulary import SPECIALS, Tokenizer
from glassformer.foundation.errors import DataError


class WordEdges(NamedTuple):
    """Of each id: whether white space stands before it, and whether some stands behind it, when it is written."""

    opens: NDArray[np.bool_]
    closes: NDArray[np.bool_]

    def starts(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[T]: True where a word begins: at the first token, behind white space, and around a special token."""
        special = ids < len(SPECIALS)
        starts = self.opens[ids] | special
        starts[1:] |= self.closes[ids[:-1]] | special[:-1]
        starts[:1] = True
        return starts


def word_edges(tokenizer: Tokenizer) -> WordEdges:
    """The table of a tokenizer: each token is written behind a word, and before one.

    Errors: `DataError` for a vocabulary in which no token is text without white space around it.
    """
    ids = range(len(SPECIALS), tokenizer.vocab_size)
    probe = next((id for id in ids if _is_plain(tokenizer.decode([id, id]))), None)
    if probe is None:
        raise DataError(
            "Words are found by the white space around them, but no token of this vocabulary is written without. "
            "Set data.whole_words = false."
        )
    alone = len(tokenizer.decode([probe]))
    opens, closes = np.zeros((2, tokenizer.vocab_size), np.bool_)
    for id in ids:
        opens[id] = tokenizer.decode([probe, id])[alone:][:1].isspace()
        closes[id] = tokenizer.decode([id, probe])[:-alone][-1:].isspace()
    return WordEdges(opens, closes)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.strip() == text != ""
