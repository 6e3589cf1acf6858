"""Measure how much of a held-out text occurs word for word in the training text, so that it may be memorised.

Compares windows of 13 words, as Brown et al. 2020 (GPT-3, appendix C) do, but without removing punctuation or case. If
white space separates fewer than one word per 20 characters, it compares windows of 50 characters. A document that is
shorter than a window is one window: it is compared as a whole with the other short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.data.running.corpus import Part
from glassformer.data.tokens.code_points import codes_of
from glassformer.data.tokens.vocabulary import ANYWHERE

WORDS, CHARACTERS = 13, 50
LONG_WORDS = 20
"""Characters per word; if there are more, white space does not separate words."""
MOST = 2**20
"""Most windows of the held-out text to look for, evenly spread; more would fill memory."""
ODD = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


class Overlap(NamedTuple):
    """The number of windows of a held-out text, and of those among them that occur in the training text."""

    unit: str
    """"words" or "characters"."""
    size: int
    """How many words or characters a window has."""
    n: int
    """Windows that were looked for, at least 1."""
    found: int

    @property
    def share(self) -> float:
        """The share of windows that were found, 0 to 1."""
        return self.found / self.n


def overlap(train: Part, held_out: Part) -> Overlap:
    """Look for windows of the held-out text in the training text; none crosses from one document to the next.

    They are compared by hashes of 64 bits. Errors: `DataError` from reading.
    """
    n_words = sum(len(text.split()) for text in held_out.texts(ANYWHERE))
    unit = "words" if n_words * LONG_WORDS >= held_out.n_characters else "characters"
    size, most = (WORDS, n_words) if unit == "words" else (CHARACTERS, held_out.n_characters)
    step = -(-most // MOST)
    asked: list[Hashes] = []
    n = 0
    for each in hashes(held_out, unit, size):
        asked.append(each[-n % step :: step].copy())
        n += len(each)
    windows, counts = np.unique(np.concatenate(asked), return_counts=True)
    seen = np.zeros(len(windows), np.bool_)
    for each in hashes(train, unit, size):
        places = np.searchsorted(windows, each).clip(max=len(windows) - 1)
        seen[places[windows[places] == each]] = True
    return Overlap(unit, size, int(counts.sum()), int(counts[seen].sum()))


def hashes(part: Part, unit: str, size: int) -> Iterator[Hashes]:
    """A hash for each window of a text, piece by piece; the next piece's first windows start at the end of this one."""
    before, shorter = np.zeros(0, np.uint64), True
    for piece in part.pieces(ANYWHERE):
        here = word_hashes(piece.text) if unit == "words" else character_hashes(piece.text)
        values = np.concatenate([before, here])
        shorter = shorter and len(values) < size
        yield rolled(values, max(1, len(values)) if shorter and piece.ends else size)
        before, shorter = (values[:0], True) if piece.ends else (values[max(0, len(values) - size + 1) :], shorter)


def word_hashes(text: str) -> Hashes:
    """A number for each word, the same within this process."""
    return np.fromiter(map(hash, text.split()), np.int64).view(np.uint64)


def character_hashes(text: str) -> Hashes:
    """A number for each character."""
    mixed = codes_of(text).astype(np.uint64) * ODD
    return (mixed ^ (mixed >> np.uint64(29))) * ODD


def rolled(values: Hashes, size: int) -> Hashes:
    """A hash for each window of `size` values that depends on their order: a polynomial modulo 2^64."""
    count = max(0, len(values) - size + 1)
    total = np.zeros(count, np.uint64)
    for place in range(size):
        total = total * ODD + values[place : place + count]
    return total ^ (total >> np.uint64(32))
