r"""Where text may be cut, so that the tokens of its parts are those of the whole.

A place to cut is after a character that is not white space and before a space, "\n" or "\t": no tokenizer here has a
token across it. If a tokenizer says so (`Tokenizer.cut_anywhere`), text may be cut between any two characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SPACES = " \n\t"
PLACE = re.compile(rf"\S(?=[{SPACES}])")
SHARE = 2**14
"""Characters that a library for subwords gets as one text: it encodes many texts together, on all cores, takes 256 at
once to train, and uses a thousand bytes for each token of a text."""


def shares(text: str) -> Iterator[str]:
    """Cut text into shares of at most `SHARE` characters; one without a place to cut extends to the next place."""
    first = 0
    while len(text) - first > SHARE and (last := end_of_share(text, first)):
        yield text[first:last]
        first = last
    yield text[first:]


def end_of_share(text: str, first: int) -> int:
    """The place where the share that starts at `first` ends; 0 if no place is left."""
    if size := last_place(text[first : first + SHARE]):
        return first + size
    behind = PLACE.search(text, first + SHARE - 1)
    return behind.end() if behind else 0


def last_place(text: str) -> int:
    """The last place to cut a text, counted in the characters before it; 0 if there is none."""
    at = len(text)
    while (at := max(text.rfind(space, 0, at) for space in SPACES)) > 0:
        if not text[at - 1].isspace():
            return at
        at = len(text[:at].rstrip()) + 1  # past a run of white space in one step, however long it is
        if at > 1 and text[at - 1] in SPACES:
            return at - 1
    return 0
