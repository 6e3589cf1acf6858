"""Text to an array of ids: those of `Tokenizer.encode`, if possible without a Python number for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.tokens.code_points import CodePoints
from glassformer.data.tokens.subword import ByteTokenizer
from glassformer.data.tokens.vocabulary import SPECIALS, Tokenizer, shares, utf8
from glassformer.data.tokens.words import CharacterTokenizer

Ids = NDArray[Any]
"""[n], of an integer type that holds every id."""
Encode = Callable[[str, bool], Ids]
"""Takes a part of a text, and whether others came before it (`Tokenizer.encode_parts`)."""


def encoder(tokenizer: Tokenizer) -> Encode:
    """A function from text to its ids, the same as those of `tokenizer`; parts are cut as it allows."""
    if isinstance(tokenizer, CharacterTokenizer):
        return by_table(tokenizer)
    if isinstance(tokenizer, ByteTokenizer):
        return lambda text, behind: np.frombuffer(utf8(text), np.uint8) + np.uint16(len(SPECIALS))
    return lambda text, behind: joined(tokenizer, text, behind)


def by_table(tokenizer: CharacterTokenizer) -> Encode:
    """Look code points up in a table of ids."""
    points = CodePoints(tokenizer.entries)

    def encode(text: str, behind: bool) -> Ids:
        utf8(text)
        return points.array(text)

    return encode


def joined(tokenizer: Tokenizer, text: str, behind: bool) -> Ids:
    """Encode the text in shares, and join their ids."""
    parts = list(shares(text, tokenizer.cuts))
    return np.concatenate([np.array(row, np.uint32) for row in tokenizer.encode_parts(parts, behind=behind)])
