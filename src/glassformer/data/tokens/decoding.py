"""Ids that become text one by one: each is decoded once, and what is told is never taken back."""

from __future__ import annotations

import codecs

from glassformer.data.tokens.vocabulary import Tokenizer


class Decoding:
    """The text of ids as they come: joined, the pieces are `decode` of all of them.

    Ids add bytes to a text. The first bytes of a character wait for its others, as far as there can be any; bytes that
    are no character are U+FFFD, as there. Where they go on from a text (`behind` one), the first word has its
    blank before it, too.
    """

    def __init__(self, tokenizer: Tokenizer, *, behind: bool = False) -> None:
        self.tokenizer = tokenizer
        self._told = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = behind

    def add(self, id: int) -> str:
        """The text that is sure since the last id came. Errors: `DataError` for an unknown id."""
        added = self.tokenizer.adds(id, first=not self._begun)
        self._begun = self._begun or bool(added)
        return self._tell(self._decoder.decode(added))

    def end(self) -> str:
        """What was held back, where no more ids come."""
        return self._tell(self._decoder.decode(b"", final=True))

    def __len__(self) -> int:
        """Characters of the text so far, what is held back included."""
        held, _ = self._decoder.getstate()
        return self._told + len(held.decode("utf-8", errors="replace"))

    def _tell(self, text: str) -> str:
        self._told += len(text)
        return text
