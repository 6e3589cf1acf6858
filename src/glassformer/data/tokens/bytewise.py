"""Bytes as tokens: 256 ids that spell every text; and functions to join the byte pieces of subwords."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from glassformer.base.errors import DataError
from glassformer.data.config import TokenizerConfig
from glassformer.data.tokens.cuts import ANYWHERE
from glassformer.data.tokens.vocabulary import SPECIALS, THE_FILE, UNK, Tokenizer, check_ids_known, read_json, utf8
from glassformer.data.tokens.whole_words import words_of


def join_pieces(pieces: Sequence[bytes], ids: Iterable[int]) -> str:
    """The text spelled by the bytes of each id; bytes that are not UTF-8, as a model may write them, become U+FFFD."""
    known = check_ids_known(ids, len(pieces))
    spelled = (pieces[id] for id in known if id >= len(SPECIALS) or id == UNK)
    return b"".join(spelled).decode("utf-8", errors="replace")


def piece_of(pieces: Sequence[bytes], id: int) -> bytes:
    """The bytes that one id adds to such a text."""
    check_ids_known([id], len(pieces))
    return pieces[id] if id >= len(SPECIALS) or id == UNK else b""


def show_pieces(pieces: Sequence[bytes], ids: Iterable[int]) -> list[str]:
    r"""Each id's bytes as text, with \\xNN for bytes that are only part of a character."""
    known = check_ids_known(ids, len(pieces))
    return [pieces[id].decode("utf-8", errors="backslashreplace") for id in known]


class ByteTokenizer(Tokenizer):
    """One id per byte of UTF-8: byte b is id 6 + b. Every text has ids, and they give the same text back."""

    kind = "byte"
    cuts = ANYWHERE
    pieces = (*(name.encode() for name in SPECIALS), *(bytes([byte]) for byte in range(256)))

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        return [len(SPECIALS) + byte for byte in utf8(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return join_pieces(self.pieces, ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return show_pieces(self.pieces, ids)

    def adds(self, id: int, *, first: bool = False) -> bytes:
        return piece_of(self.pieces, id)

    def words_of(self, ids: Iterable[int]) -> list[int]:
        return words_of(self.pieces, ids)

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "specials": SPECIALS}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> ByteTokenizer:
        record = read_json(text)
        if record.get("kind") != cls.kind or record.get("specials") != list(SPECIALS):
            raise DataError(
                f"A byte tokenizer must have kind 'byte' and specials {', '.join(SPECIALS)}, but this one has "
                f"kind {record.get('kind')!r} and specials {record.get('specials')!r}. {THE_FILE}"
            )
        return cls()

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> ByteTokenizer:
        return cls()  # nothing to learn: the vocabulary is all bytes, whatever the texts
