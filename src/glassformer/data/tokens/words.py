"""Tokenizers whose vocabulary is a list of strings: the words or characters of the training text, or labels."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

from glassformer.base.errors import ConfigError, DataError
from glassformer.data.tokens.vocabulary import (
    ANYWHERE,
    SPECIALS,
    THE_FILE,
    UNK,
    Tokenizer,
    VocabularySettings,
    check_ids_known,
    read_json,
    utf8,
)

if TYPE_CHECKING:
    from glassformer.data.tokens.code_points import CodePoints


SPACE = re.compile(
    rb"(?:[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)
"""What `str.isspace` takes for white space, in UTF-8. A single byte may be only part of one, so tokens cannot tell."""
NO_WORD = -1


def words_of(pieces: Sequence[bytes], ids: Iterable[int]) -> list[int]:
    """The number of each id's word, as in `Tokenizer.words_of`; `pieces` are indexed by id."""
    import numpy as np  # here, so that `--help` does not wait for it

    known = check_ids_known(ids, len(pieces))
    special = {id: b" " for id in range(len(SPECIALS)) if id != UNK}
    spelled = [special.get(id) or pieces[id] for id in known]
    text = b"".join(spelled)
    edges = [0] * (SPACE.match(text) is None) + [space.end() for space in SPACE.finditer(text)]
    ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)))
    begins = np.zeros(len(known), np.bool_)
    begins[np.searchsorted(ends, [edge for edge in edges if edge < len(text)], side="right")] = True
    parted = np.isin(np.asarray(known, np.int64), list(special))
    # No word has begun since the last special id if that is nearer than the last start of a word.
    place = np.arange(1, len(known) + 1)
    no_word = np.maximum.accumulate(place * parted) >= np.maximum.accumulate(place * begins)
    return np.where(no_word, NO_WORD, np.cumsum(begins) - 1).tolist()


class _Listed(Tokenizer):
    """Ids 6, 7, ... stand for the strings of `entries`, in order. Any other string is <unk>."""

    joint: ClassVar[str]

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self._names = (*SPECIALS, *self.entries)
        self._ids = {entry: id for id, entry in enumerate(self.entries, start=len(SPECIALS))}

    @staticmethod
    @abstractmethod
    def cut(text: str) -> list[str]:
        """The pieces of `text` that get one id each."""

    @classmethod
    def counted(cls, text: str) -> Mapping[str, int]:
        """How often each piece occurs in `text`."""
        return Counter(cls.cut(text))

    @property
    def vocab_size(self) -> int:
        return len(SPECIALS) + len(self.entries)

    def encode(self, text: str) -> list[int]:
        utf8(text)
        return [self._ids.get(piece, UNK) for piece in self.cut(text)]

    def lacks(self, text: str) -> list[str]:
        utf8(text)
        return [piece for piece in self.cut(text) if piece not in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        known = check_ids_known(ids, self.vocab_size)
        return self.joint.join(self.tokens(id for id in known if id >= len(SPECIALS) or id == UNK))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._names[id] for id in check_ids_known(ids, self.vocab_size)]

    def adds(self, id: int, *, first: bool = False) -> bytes:
        """A word also adds the space before it, unless it is the first."""
        [token] = self.tokens([id])
        if id < len(SPECIALS) and id != UNK:
            return b""
        return (token if first else self.joint + token).encode()

    def words_of(self, ids: Iterable[int]) -> list[int]:
        known = check_ids_known(ids, self.vocab_size)
        return [place if id >= len(SPECIALS) or id == UNK else NO_WORD for place, id in enumerate(known)]

    def to_json(self) -> str:
        record = {"kind": self.kind, "specials": SPECIALS, "entries": self.entries}
        return json.dumps(record, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> _Listed:
        return cls(cls.entries_in(read_json(text)))

    @classmethod
    def entries_in(cls, record: Mapping[str, object]) -> list[str]:
        """The entries of what `to_json` wrote. Errors: `DataError` for anything else."""
        entries = record.get("entries")
        if record.get("kind") != cls.kind or record.get("specials") != list(SPECIALS):
            raise DataError(
                f"A {cls.kind} tokenizer must have kind {cls.kind!r} and specials {', '.join(SPECIALS)}, but this "
                f"one has kind {record.get('kind')!r} and specials {record.get('specials')!r}. {THE_FILE}"
            )
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in cast("list[object]", entries)):
            raise DataError(
                f"A {cls.kind} tokenizer must have a list of strings under 'entries', but this one has none. {THE_FILE}"
            )
        entries = cast("list[str]", entries)
        for place, entry in enumerate(entries):
            utf8(entry)
            if cls.cut(entry) != [entry]:
                raise DataError(
                    f"Each entry of a {cls.kind} tokenizer must be one {cls.kind}, but entry {place} is {entry!r}. "
                    f"{THE_FILE}"
                )
        if len(set(entries)) != len(entries):
            raise DataError(
                f"The entries of a {cls.kind} tokenizer must be different, but some of this one occur twice. {THE_FILE}"
            )
        return entries

    @classmethod
    def train(cls, texts: Iterable[str], config: VocabularySettings) -> _Listed:
        found: Counter[str] = Counter()
        for text in texts:
            utf8(text)
            found.update(cls.counted(text))
        if found and (most := max(found.values())) < config.min_count:
            raise ConfigError(
                f"A vocabulary keeps what occurs at least tokenizer.min_count={config.min_count} times, but nothing in "
                f"the training text occurs more than {most} times, so nothing would be left. Try min_count=1."
            )
        # sorted: the order must not depend on Python's string hashes
        return cls(sorted(piece for piece, count in found.items() if count >= config.min_count))


class WordTokenizer(_Listed):
    """One id per word. Words end at white space; `decode` puts one space between them."""

    kind = "word"
    joint = " "

    @staticmethod
    def cut(text: str) -> list[str]:
        return text.split()


class CharacterTokenizer(_Listed):
    """One id per character (a Unicode code point); `decode` puts nothing between them."""

    kind = "character"
    cuts = ANYWHERE
    joint = ""

    @staticmethod
    def cut(text: str) -> list[str]:
        return list(text)

    @classmethod
    def counted(cls, text: str) -> Mapping[str, int]:
        from glassformer.data.tokens.code_points import counted

        return counted(text)

    @cached_property
    def _points(self) -> CodePoints:
        from glassformer.data.tokens.code_points import CodePoints  # here, so that `--help` does not wait for numpy

        return CodePoints(self.entries)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            utf8(text)
        return self._points.ids(texts)

    def decode(self, ids: Iterable[int]) -> str:
        known = check_ids_known(ids, self.vocab_size)
        found = self._points.text(known)
        return super().decode(known) if found is None else found

    def words_of(self, ids: Iterable[int]) -> list[int]:
        return words_of(self._spelled, ids)

    @cached_property
    def _spelled(self) -> list[bytes]:
        return [name.encode() for name in self._names]


class Labels(_Listed):
    """The label set of a classifier: a whole text is one entry. Label k of the model has id FIRST_LABEL + k."""

    kind = "label"
    joint = "\n"

    def __init__(self, entries: Sequence[str]) -> None:
        super().__init__(entries)
        for place, entry in enumerate(self.entries):
            if not entry.strip():
                raise DataError(
                    f"A label must be a name, but label {place} (counted from 0) is {entry!r}. Give it a name, or "
                    "remove its texts."
                )

    @staticmethod
    def cut(text: str) -> list[str]:
        return [text]

    def in_units(self, outputs: Sequence[float]) -> list[float]:
        """The outputs of a head in the units of the data, one for each entry: as they are, where they are scores."""
        return [*outputs]


FIRST_LABEL = len(SPECIALS)
