"""The room of a language model for a search, where prompt and text must fit into the context together."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.base.errors import TooLongError
from glassformer.decode.answer import ASKED, CONTEXTS, Limit

CROP = " With --crop its end is read."
"""Advice for a user of the command line."""


class Room(NamedTuple):
    """How much is read at once. A beam search reads prompt and text as a whole and drops nothing at the front."""

    longest: int
    """In tokens."""
    drop: int
    """A prompt that is cropped makes room for one token more than this, if nothing says how long its text may be."""
    setting: str
    """What it is called in a recipe."""

    def fitted(self, ids: list[int], number: int, asked: int | None, usual: int, crop: bool) -> tuple[list[int], Limit]:
        """What is read of a prompt, and the limit of its text: what was asked for, else the usual one or what fits.

        The last token of a text is not read, so it needs no room. With `crop`, the end of the prompt is read that
        leaves room. Errors: `TooLongError` with the `number` of a prompt that leaves too little.
        """
        together = f"A beam search reads a prompt and its text together, at most {self.longest} tokens here"
        if asked is not None and asked > self.longest:
            raise TooLongError(
                f"{together} ({self.setting}), so a text may have at most {self.longest}; got max_new_tokens={asked}. "
                f"Set max_new_tokens={self.longest} or less."
            )
        if crop:
            needed = min(usual, self.drop + 1, self.longest) if asked is None else asked
            ids = ids[-(self.longest + 1 - needed) :]
        room = self.longest + 1 - len(ids)
        if asked is None:
            return ids, Limit(usual, ASKED) if usual <= room else Limit(room, CONTEXTS)
        if asked > room:
            raise TooLongError(
                f"{together} ({self.setting}); prompt {number} has {len(ids)}, which leaves room for {room}; got "
                f"max_new_tokens={asked}. Set max_new_tokens={room} or less, or shorten the prompt.{CROP}"
            )
        return ids, Limit(asked, ASKED)
