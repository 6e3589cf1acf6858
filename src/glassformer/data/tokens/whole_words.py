"""Find the word that each id of a row belongs to, for a mask over whole words. White space separates words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from glassformer.data.tokens.vocabulary import SPECIALS, UNK, check_ids_known

SPACE = re.compile(
    rb"(?:[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)
"""What `str.isspace` takes for white space, in UTF-8. A single byte may be only part of one, so tokens cannot tell."""
NO_WORD = -1


def words_of(pieces: Sequence[bytes], ids: Iterable[int]) -> list[int]:
    """The number of each id's word, as in `Tokenizer.words_of`; `pieces` are indexed by id."""
    import numpy as np  # here, so that `--help` does not wait for it

    known = check_ids_known(ids, len(pieces))
    special = {id: b" " for id in range(len(SPECIALS)) if id != UNK}
    spelled = [special.get(id) or pieces[id] for id in known]
    text = b"".join(spelled)
    edges = [0] * (SPACE.match(text) is None) + [space.end() for space in SPACE.finditer(text)]
    ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)))
    begins = np.zeros(len(known), np.bool_)
    begins[np.searchsorted(ends, [edge for edge in edges if edge < len(text)], side="right")] = True
    parted = np.isin(np.asarray(known, np.int64), list(special))
    # No word has begun since the last special id if that is nearer than the last start of a word.
    place = np.arange(1, len(known) + 1)
    no_word = np.maximum.accumulate(place * parted) >= np.maximum.accumulate(place * begins)
    return np.where(no_word, NO_WORD, np.cumsum(begins) - 1).tolist()
