"""Turn ids into text one by one: each is decoded once, and text that was returned is never taken back.

`begins_in` finds the ids of a text in it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from unicodedata import combining, normalize

from glassformer.data.tokens.vocabulary import SPECIALS, UNK, Tokenizer, utf8


class Decoding:
    """The text of ids as they come; joined, the pieces are `decode` of all of them.

    Ids add bytes to a text. The first bytes of a character wait for its others, as long as there can be any; bytes that
    form no character become U+FFFD, as in `decode`. If the ids continue a text (`behind`), the first word has its space
    before it, too.
    """

    def __init__(self, tokenizer: Tokenizer, *, behind: bool = False) -> None:
        self.tokenizer = tokenizer
        self._length = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = behind

    def add(self, id: int) -> str:
        """Add an id. Returns the text that has become certain by it. Errors: `DataError` for an unknown id."""
        added = self.tokenizer.adds(id, first=not self._begun)
        self._begun = self._begun or id >= len(SPECIALS) or id == UNK
        return self._counted(self._decoder.decode(added))

    def end(self) -> str:
        """Return what was held back, when no more ids come."""
        return self._counted(self._decoder.decode(b"", final=True))

    def __len__(self) -> int:
        """Characters of the text so far, including what is held back."""
        held, _ = self._decoder.getstate()
        return self._length + len(held.decode("utf-8", errors="replace"))

    def _counted(self, text: str) -> str:
        self._length += len(text)
        return text


def begins_in(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Where each of the ids of an encoded text begins in it, in characters.

    An <unk> stands where the part is that the vocabulary lacks; white space that no id holds is passed over. An id that
    begins within a character begins where that does, also if the tokenizer has composed it of several.
    """
    encoded = tokenizer.normal(text)
    if encoded != text:
        places = composed_of(text)
        return [places[begin] for begin in begins_in(encoded, ids, tokenizer)]
    whole, missing = utf8(text), iter(tokenizer.unknown(text))
    begins, at, counted, characters = list[int](), 0, 0, 0
    for n, id in enumerate(ids):
        piece = next(missing) if id == UNK else tokenizer.adds(id, first=n == 0)
        if not whole.startswith(piece, at):  # other white space than the space between two words
            piece = piece.lstrip()
            at = max(at, whole.find(piece, at))
        characters += sum(map(starts_character, whole[counted:at]))
        counted = at
        within = at < len(whole) and not starts_character(whole[at])
        begins.append(characters - within)
        at += len(piece)
    return begins


def composed_of(text: str) -> list[int]:
    """Where each character of the text in Unicode's form NFC begins in the text, and where that ends.

    A run of characters that are composed or put in order together has the place where it begins.
    """
    places, run, first = list[int](), "", 0
    for at, each in enumerate([*text, ""]):
        apart = not combining(each) if each else True
        if apart and (not each or normalize("NFC", run + each) == normalize("NFC", run) + normalize("NFC", each)):
            whole = normalize("NFC", run)
            places += [first + n for n in range(len(run))] if whole == run else [first] * len(whole)
            run, first = "", at
        run += each
    return [*places, len(text)]


def starts_character(byte: int) -> bool:
    """Whether a byte of UTF-8 is the first of a character."""
    return byte & 0xC0 != 0x80
