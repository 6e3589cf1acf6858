"""Where words begin in a row of ids, for a mask over whole words. A word is what stands between white space."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from glassformer.data.vocabulary import SPECIALS, UNK, check_ids_known

SPACE = re.compile(
    rb"(?:[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)
"""What `str.isspace` takes for white space, in UTF-8. A byte alone may be part of one only, so tokens cannot tell."""


def word_starts(pieces: Sequence[bytes], ids: Iterable[int]) -> list[bool]:
    """True where an id holds the first byte of a word, for the first id, and for special ones; `pieces` are by id.

    White space that has an id of its own goes with the word before.
    """
    import numpy as np  # here, as `--help` need not wait for it

    known = check_ids_known(ids, len(pieces))
    special = {id: b" " for id in range(len(SPECIALS)) if id != UNK}
    spelled = [special.get(id) or pieces[id] for id in known]
    text = b"".join(spelled)
    words = [0, *(space.end() for space in SPACE.finditer(text))]
    ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)))
    starts = np.isin(np.asarray(known, np.int64), list(special))
    starts[np.searchsorted(ends, [place for place in words if place < len(text)], side="right")] = True
    return starts.tolist()
