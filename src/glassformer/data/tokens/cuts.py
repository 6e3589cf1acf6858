r"""Where text may be cut, so that the tokens of its parts are those of the whole.

A place to cut is after a character that is not white space and before a space, "\n" or "\t": no tokenizer that is
trained here has a token across it. One that was imported may have fewer places, and one whose tokens are single
characters or bytes has them between any two characters: `Tokenizer.cuts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Cuts(NamedTuple):
    """The places where text may be cut for a tokenizer."""

    before: str = " \n\t"
    """The kinds of white space that a place is before, if no other white space comes before it."""
    as_space: str = ""
    """Characters that count as white space, too."""
    anywhere: bool = False
    """Whether no token has more than one character, so that text may be cut between any two."""


WHITE_SPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.isspace` takes for white space."""
WORDS, ANYWHERE = Cuts(), Cuts(anywhere=True)
SHARE = 2**14
"""Characters that a library for subwords gets as one text: it encodes many texts together, on all cores, takes 256 at
once to train, and uses a thousand bytes for each token of a text."""


def shares(text: str, cuts: Cuts = WORDS) -> Iterator[str]:
    """Cut text into shares of at most `SHARE` characters; one without a place to cut extends to the next place."""
    first = 0
    while len(text) - first > SHARE and (last := end_of_share(text, first, cuts)):
        yield text[first:last]
        first = last
    yield text[first:]


def end_of_share(text: str, first: int, cuts: Cuts) -> int:
    """The place where the share that starts at `first` ends; 0 if no place is left."""
    if size := last_place(text[first : first + SHARE], cuts):
        return first + size
    behind = re.compile(rf"[^\s{cuts.as_space}](?=[{cuts.before}])").search(text, first + SHARE - 1)
    return behind.end() if behind else 0


def last_place(text: str, cuts: Cuts = WORDS) -> int:
    """The last place to cut a text, counted in the characters before it; 0 if there is none."""
    at, blank = len(text), WHITE_SPACE + cuts.as_space
    while (at := max(text.rfind(space, 0, at) for space in cuts.before)) > 0:
        if text[at - 1] not in blank:
            return at
        at = len(text[:at].rstrip(blank)) + 1  # past a run of white space in one step, however long it is
        if at > 1 and text[at - 1] in cuts.before:
            return at - 1
    return 0
