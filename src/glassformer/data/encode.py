"""Text to an array of ids, fast: the same ids as `Tokenizer.encode`, without a Python number for each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from glassformer.data.bytewise import ByteTokenizer
from glassformer.data.text import last_place
from glassformer.data.vocabulary import SPECIALS, UNK, Tokenizer, utf8
from glassformer.data.words import CharacterTokenizer

Ids = NDArray[np.int64]
Encode = Callable[[str], Ids]

CODE_POINTS = 0x110000
SHARE = 2**16
"""Characters that one call of a library gets: it takes many texts together, on all cores."""


def encoder(tokenizer: Tokenizer) -> Encode:
    """A function from text to its ids, as `tokenizer` has them."""
    if isinstance(tokenizer, CharacterTokenizer):
        return by_table(tokenizer)
    if isinstance(tokenizer, ByteTokenizer):
        return lambda text: np.frombuffer(utf8(text), np.uint8) + np.int64(len(SPECIALS))
    return lambda text: joined(tokenizer, text)


def cut_anywhere(tokenizer: Tokenizer) -> bool:
    """Whether no token has more than one character, so that text may be cut between any two."""
    return isinstance(tokenizer, CharacterTokenizer | ByteTokenizer)


def by_table(tokenizer: CharacterTokenizer) -> Encode:
    """Code points looked up in a table of ids."""
    table = np.full(CODE_POINTS, UNK, np.int64)
    table[[ord(entry) for entry in tokenizer.entries]] = np.arange(len(SPECIALS), tokenizer.vocab_size)

    def encode(text: str) -> Ids:
        utf8(text)
        return table[np.frombuffer(text.encode("utf-32-le"), np.uint32)]

    return encode


def joined(tokenizer: Tokenizer, text: str) -> Ids:
    """Text in shares, cut where no token is, and their ids one behind the other."""
    shares: list[str] = []
    rest = text
    while len(rest) > SHARE and (at := last_place(rest[:SHARE])):
        shares.append(rest[:at])
        rest = rest[at:]
    shares.append(rest)
    rows = tokenizer.encode_all(shares)
    return np.fromiter((id for row in rows for id in row), np.int64, sum(map(len, rows)))
