"""The parts of running text: what is trained on, what is held out, and how large each is.

If no dev text is named, dev is the end of the training text. It starts `dev_share` of the characters before the end or,
with several documents, at the boundary between two of them that is nearest to that, unless this would change dev by
more than half of its size (few documents, or one very long): then the document is cut, and counts as one in either
part.

How much of a held-out text occurs word for word in the training text, so that it may be memorised, is measured by
windows of 13 words, as Brown et al. 2020 (GPT-3, appendix C) do, but without removing punctuation or case. If white
space separates fewer than one word per 20 characters, it compares windows of 50 characters. A document that is shorter
than a window is one window: it is compared as a whole with the other short ones.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.config import SPLITS, DataConfig
from glassformer.data.running.text import (
    LEARN,
    SCORE,
    TOPICS,
    DocumentPiece,
    Stamp,
    changed_while_read,
    holds_json,
    opened,
    pieces,
    stamps,
    text_files,
)
from glassformer.data.tokens.code_points import codes_of
from glassformer.data.tokens.vocabulary import ANYWHERE, WORDS, Cuts, shares

END = b"\0"
"""Marks the end of a document when text is hashed; no text contains it."""


@dataclass(frozen=True)
class Corpus:
    """A whole text with its measurements, from one reading of it."""

    path: str | None
    field: str | None
    json: bool | None
    skip_empty: bool
    sha256: str
    """SHA-256 of its documents in UTF-8."""
    ends: NDArray[np.int64]
    """Characters up to the end of each document."""
    skips: NDArray[np.int64]
    """Characters before each empty document that was skipped."""
    stamps: tuple[Stamp, ...]

    @property
    def name(self) -> str:
        """What messages call it."""
        return TOPICS if self.path is None else self.path

    def part(self, first: int = 0, last: int | None = None) -> Part:
        """The part between these characters; by default the whole text."""
        return Part(self, first, int(self.ends[-1]) if last is None else last)


@dataclass(frozen=True)
class Part:
    """A stretch of a text, which one split reads."""

    corpus: Corpus
    first: int
    """Characters before it."""
    last: int
    """Characters up to its end."""

    @property
    def n_characters(self) -> int:
        """Its size in characters."""
        return self.last - self.first

    @property
    def n_documents(self) -> int:
        """Documents that have at least one character in it."""
        first, last = np.searchsorted(self.corpus.ends, [self.first + 1, self.last])
        return int(last - first) + 1

    @property
    def n_skipped(self) -> int:
        """Empty documents that were skipped in it. One at the border of two parts counts for the second only."""
        after = "right" if self.last == self.corpus.ends[-1] else "left"
        first = np.searchsorted(self.corpus.skips, self.first)
        return int(np.searchsorted(self.corpus.skips, self.last, after) - first)

    def pieces(self, cuts: Cuts = WORDS) -> Iterator[DocumentPiece]:
        """Its text, piece by piece; a document ends where it really ends, or with the part.

        Errors: `DataError` from reading, and for a text that has changed since it was measured.
        """
        corpus = self.corpus
        self._refuse_changed()
        at = 0
        for piece in pieces(corpus.path, corpus.field, json=corpus.json, skip_empty=corpus.skip_empty, cuts=cuts):
            text = piece.text[max(0, self.first - at) : max(0, self.last - at)]
            at += len(piece.text)
            if text:
                yield DocumentPiece(text, piece.ends or at >= self.last, piece.place)
            if at >= self.last:
                break
        self._refuse_changed()
        if at < self.last:
            raise changed_while_read(corpus.name)

    def texts(self, cuts: Cuts = WORDS) -> Iterator[str]:
        """Its text in shares, for a single pass such as the training of a tokenizer."""
        return (share for piece in self.pieces(cuts) for share in shares(piece.text, cuts))

    def _refuse_changed(self) -> None:
        now = stamps(self.corpus.path)
        if now != self.corpus.stamps:
            differing = sorted({each.path for each in {*now} ^ {*self.corpus.stamps}})
            raise changed_while_read(differing[0])


def measure(
    path: str | None,
    field: str | None = None,
    *,
    json: bool | None = None,
    skip_empty: bool = False,
    use: str = LEARN,
) -> Corpus:
    """Read a text once, to find its size, its documents and its hash; `use` is as for `pieces`.

    Errors: `DataError`, as reading raises it.
    """
    before = stamps(path)
    digest, ends, skips, length = hashlib.sha256(), array("q"), array("q"), 0
    for piece in pieces(path, field, json=json, skip_empty=skip_empty, cuts=ANYWHERE, use=use):
        digest.update(piece.text.encode("utf-8"))
        length += len(piece.text)
        if piece.ends:
            digest.update(END)
            ends.append(length)
        elif not piece.text:
            skips.append(length)
    if before != stamps(path):
        raise changed_while_read(TOPICS if path is None else path)
    if not ends:
        raise DataError(f"{path}: every document is empty, so nothing is left to read. Give other text.")
    return Corpus(path, field, json, skip_empty, digest.hexdigest(), np.array(ends), np.array(skips, np.int64), before)


def read_parts(config: DataConfig, splits: Sequence[str] = SPLITS) -> dict[str, Part]:
    """The parts of those of these splits that exist: test only if it is named.

    Errors: `DataError` from reading, and for a text too short to hold anything out; `ConfigError` for a field where no
    file is .jsonl.
    """
    found: dict[str, Part] = {}
    named = {split: config.text_file(split) for split in SPLITS}
    files = [file for path in named.values() if path is not None for file in text_files(path)]
    if config.field is not None and not any(_is_json(file, config) for file in files):
        raise ConfigError(
            f"data.field={config.field!r} names a field of JSON objects, but no text is a file of them. Remove "
            "data.field, or give a file with one object on each line (.jsonl, .ndjson, also .gz)."
        )
    how: Any = {"field": config.field, "json": config.json, "skip_empty": config.skip_empty}
    for split in [each for each in splits if named[each] is not None]:
        use = LEARN if split == "train" else SCORE
        found[split] = measure(named[split], **how, use=use).part()
    if named["dev"] is None and {"train", "dev"} & {*splits}:
        whole = found["train"].corpus if "train" in found else measure(named["train"], **how)
        at = held_out_from(whole, config.dev_share)
        found |= {"train": whole.part(0, at), "dev": whole.part(at)}
    elif named["train"] is None and "train" in splits:
        found["train"] = measure(None).part()
    return {split: found[split] for split in splits if split in found}


def _is_json(path: Path, config: DataConfig) -> bool:
    with opened(path) as file:
        return holds_json(file, path, config.field, config.json)


def held_out_from(corpus: Corpus, share: float) -> int:
    """Characters of a text before its dev part. Errors: `DataError` if one of the two would be empty."""
    total = int(corpus.ends[-1])
    at = int(total * (1 - share))
    edges = corpus.ends[:-1]
    if len(edges):
        nearest = int(edges[np.abs(edges - at).argmin()])
        if abs(nearest - at) <= (total - at) / 2:
            at = nearest
    if not 0 < at < total:
        raise DataError(
            f"{corpus.name}: data.dev_share={share} of {total:,} characters leaves nothing to train on or nothing to "
            "hold out. Give a longer text, or set data.dev_text to a dev text."
        )
    return at


def has_documents(config: DataConfig, train: Part) -> bool:
    """Whether documents are put between <bos> and <eos>: as set, or else if the training text has more than one.

    Errors: `ConfigError` for a document mask over a text that is a single document.
    """
    if config.documents is not None:
        return config.documents
    several = len(train.corpus.ends) > 1
    if config.document_mask and not several:
        raise ConfigError(
            f"data.document_mask keeps attention inside each document, but {train.corpus.name} is one document. Give a "
            "folder or a .jsonl file, set data.documents=True, or remove data.document_mask."
        )
    return several


RUN_OF_WORDS, CHARACTERS = 13, 50
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
    size, most = (RUN_OF_WORDS, n_words) if unit == "words" else (CHARACTERS, held_out.n_characters)
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
