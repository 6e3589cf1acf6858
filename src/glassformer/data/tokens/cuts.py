r"""Where text may be cut, so that the tokens of its parts are those of the whole.

A place is behind a character that is no white space and before a space, "\n" or "\t": no tokenizer here has a token
across it. Between any two characters may be cut for a tokenizer that says so (`Tokenizer.cut_anywhere`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SPACES = " \n\t"
PLACE = re.compile(rf"\S(?=[{SPACES}])")
SHARE = 2**14
"""Characters that a library for subwords gets as one text: it encodes many together, on all cores, takes 256 texts at
once to train, and has a thousand bytes in use for each token of a text."""


def shares(text: str) -> Iterator[str]:
    """Text in shares of at most `SHARE` characters; one without a place goes on to the first place behind it."""
    first = 0
    while len(text) - first > SHARE and (last := end_of_share(text, first)):
        yield text[first:last]
        first = last
    yield text[first:]


def end_of_share(text: str, first: int) -> int:
    """The place where the share that begins at `first` ends; 0 where no place is left."""
    if size := last_place(text[first : first + SHARE]):
        return first + size
    behind = PLACE.search(text, first + SHARE - 1)
    return behind.end() if behind else 0


def last_place(text: str) -> int:
    """The last place of a text, counted in the characters before it; 0 where there is none."""
    at = len(text)
    while (at := max(text.rfind(space, 0, at) for space in SPACES)) > 0:
        if not text[at - 1].isspace():
            return at
        at = len(text[:at].rstrip()) + 1  # past a run of white space in one step, however long it is
        if at > 1 and text[at - 1] in SPACES:
            return at - 1
    return 0
