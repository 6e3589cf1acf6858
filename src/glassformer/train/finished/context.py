"""The context of a language model, where prompt and text must fit into it together."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.decode.answer import ASKED, CONTEXTS, Limit
from glassformer.foundation.errors import TooLongError

CROP = " With --crop its end is read."
"""Advice for a user of the command line."""


class Context(NamedTuple):
    """How much is read at once. A beam search reads prompt and text as a whole and drops nothing at the front."""

    longest: int
    """In tokens."""
    drop: int
    """How many tokens are dropped from a prompt that is longer, if nothing says how long its text may be."""
    setting: str
    """What it is called in a recipe."""

    def fitted(self, ids: list[int], number: int, asked: int | None, usual: int, crop: bool) -> tuple[list[int], Limit]:
        """What is read of a prompt, and the limit of its text: what was asked for, else the usual one or what fits.

        The last token of a text is not read, so it needs no room. With `crop`, the end of the prompt is read that
        leaves room. Errors: `TooLongError` with the `number` of a prompt that leaves too little.
        """
        fits = asked is None or asked <= self.longest
        if crop and fits and (asked is not None or len(ids) > self.longest):
            kept = self.longest - self.drop if asked is None else self.longest + 1 - asked
            ids = ids[-max(1, kept) :]
        room = self.longest + 1 - len(ids)
        if asked is None:
            return ids, Limit(usual, ASKED) if usual <= room else Limit(room, CONTEXTS)
        if asked > room:
            raise TooLongError(
                f"A beam search reads a prompt and its text together, at most {self.longest} tokens here "
                f"({self.setting}); prompt {number} has {len(ids)}, which leaves room for {room}; got "
                f"max_new_tokens={asked}. Set max_new_tokens={room} or less"
                + (f", or shorten the prompt.{CROP}" if fits else ".")
            )
        return ids, Limit(asked, ASKED)
