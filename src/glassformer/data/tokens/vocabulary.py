"""What every tokenizer promises: text to ids and back, with six special ids that no user's text can produce.

    id      0      1      2      3      4      5        6 ...
    token   <pad>  <bos>  <eos>  <unk>  <sep>  <blank>  the tokenizer's own

A user who types "<pad>" gets the ids of those five characters (or that word), never id 0.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, cast
from unicodedata import normalize

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokens.cuts import WORDS, Cuts

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>", "<sep>", "<blank>")
PAD, BOS, EOS, UNK, SEP, BLANK = range(len(SPECIALS))
MOST_NAMED = 5
"""The most parts of texts that a message names."""
THE_FILE = "Use the tokenizer.json of a glassformer run or export."
"""The remedy for a file that holds no such tokenizer."""


class Tokenizer(ABC):
    """Text to ids and back. Immutable once made; `to_json` holds all of it."""

    kind: ClassVar[str]
    cuts: Cuts = WORDS
    """Where text may be cut, so that the ids of its parts are those of the whole (`encode_parts`)."""
    composed: bool = False
    """Whether text is brought into Unicode's form NFC before it is encoded, so that é is one character."""
    begins: bool = True
    """Whether <bos> comes before a text that is a document; a published tokenizer may put nothing there."""
    ends: tuple[int, ...] = ()
    """Ids besides <eos> that end a text, as chat models have them; no text has them, and they add none."""
    least_vocab_size: ClassVar[int] = 0
    """The smallest `vocab_size` that it can be trained to; 0 if the texts alone determine the size."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without special ones except <unk>, for a word or character that the vocabulary lacks.

        Raises DataError for a lone surrogate, which is half a character and has no UTF-8 form.
        """

    def lacks(self, text: str) -> list[str]:
        """The parts of `text` that become <unk>, in order; none if the tokenizer can spell every text.

        Raises DataError as `encode` does.
        """
        utf8(text)
        return []

    def unknown(self, text: str) -> list[bytes]:
        """The bytes of `text` that each <unk> in its ids stands for, in order. Raises DataError as `encode` does."""
        return [utf8(part) for part in self.lacks(text)]

    def normal(self, text: str) -> str:
        """The text that is encoded: `text` itself, or its characters `composed`."""
        return normalize("NFC", text) if self.composed else text

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for each of `texts`."""
        return [self.encode(text) for text in texts]

    def encode_parts(self, parts: Sequence[str], *, behind: bool = False) -> list[list[int]]:
        """The ids of each part of a text that is cut as `cuts` allows; joined, they are `encode` of the whole.

        `behind`: these parts come behind others, so that the first does not begin the text.
        """
        return self.encode_all(parts)

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`. Special ids are left out, except <unk>. DataError for an unknown id."""

    @abstractmethod
    def tokens(self, ids: Iterable[int]) -> list[str]:
        r"""One string per id, for display: special tokens by name, bytes that are not text as \\xNN."""

    def names(self, ids: Iterable[int]) -> list[str]:
        """As `tokens`, but no two ids have one name: a special token, or a later one, has its id behind it.

        So the word <unk> of a text keeps its name, and the special token is "<unk> (id 3)".
        """
        ids = list(ids)
        return [self._renamed.get(id, text) for id, text in zip(ids, self.tokens(ids), strict=True)]

    @cached_property
    def _renamed(self) -> dict[int, str]:
        """The names of the ids whose text another one has, too."""
        texts, found = self.tokens(range(self.vocab_size)), dict[int, str]()
        taken, once = {*texts}, set[str]()
        for id in (*range(len(SPECIALS), len(texts)), *range(len(SPECIALS))):
            if texts[id] not in once:
                once.add(texts[id])
                continue
            name = f"{texts[id]} (id {id})"
            while name in taken:
                name += "'"
            taken.add(name)
            found[id] = name
        return found

    @abstractmethod
    def adds(self, id: int, *, first: bool = False) -> bytes:
        """The bytes that an id adds to a text, or starts it with if `first`; joined, they are `decode` in UTF-8.

        So special ids add none, except <unk>. DataError for an unknown id.
        """

    def spelling(self) -> list[bytes]:
        """The bytes that each id adds to a text, by id; empty for a special one."""
        return [b"" if id < len(SPECIALS) else self.adds(id) for id in range(self.vocab_size)]

    @abstractmethod
    def words_of(self, ids: Iterable[int]) -> list[int]:
        """The number of each id's word; words are separated by white space and by special ids (except <unk>).

        White space with its own id belongs to the word before it, or to none, -1, as the first id and after a special
        one. Special ids have -1, too. DataError for an unknown id.
        """

    @abstractmethod
    def to_json(self) -> str:
        """All of the tokenizer as JSON text; `tokenizer_from_json` reads it back."""

    @classmethod
    @abstractmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Read the tokenizer that `to_json` wrote. DataError for anything else."""

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
        """Train a tokenizer whose vocabulary covers `texts`; the same texts give the same tokenizer."""


def utf8(text: str) -> bytes:
    """`text` as UTF-8. DataError for a lone surrogate, naming it and its place."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"Text must be Unicode that UTF-8 can hold, but character {error.start + 1} is the lone surrogate "
            f"U+{ord(text[error.start]):04X}, half of a character. Read the text again with the right encoding."
        ) from None


def lacking(what: str, parts: Iterable[str]) -> str:
    """What a user is told of a text with parts that became <unk>; `what` names the text. The commonest are named."""
    counts = Counter(parts)
    named = [in_points(part, number) for part, number in counts.most_common(MOST_NAMED)]
    more = ", ..." if len(counts) > MOST_NAMED else ""
    return f"the vocabulary lacks a part of {what}, {', '.join(named)}{more}; the model read <unk> in its place"


def in_points(part: str, number: int) -> str:
    """A part of a text that occurs `number` times, a character with its code point: 'é' (U+00E9, 3 times)."""
    more = [f"U+{ord(part):04X}"] if len(part) == 1 else []
    more += [f"{number} times"] if number > 1 else []
    return repr(part[:40]) + (f" ({', '.join(more)})" if more else "")


def check_ids_known(ids: Iterable[int], vocab_size: int) -> list[int]:
    """`ids` as a list. DataError for one outside the vocabulary, naming it and its place."""
    ids = list(ids)
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        place, id = next((place, id) for place, id in enumerate(ids) if not 0 <= id < vocab_size)
        raise DataError(
            f"Ids of this tokenizer go from 0 to {vocab_size - 1}; got id {id} at place {place} (counted from 0). "
            f"Decode with the tokenizer that the model was trained with."
        )
    return ids


def read_json(text: str) -> Mapping[str, object]:
    """The JSON object in `text`. DataError if there is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(
            f"A tokenizer must be a JSON object, but this text is not valid JSON: {reason}. {THE_FILE}"
        ) from None
    if not isinstance(value, dict):
        raise DataError(
            f"A tokenizer must be a JSON object, but this JSON is of type {type(value).__name__}. {THE_FILE}"
        )
    return cast("Mapping[str, object]", value)
