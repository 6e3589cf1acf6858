"""Reading texts repeatedly with a cache, each time a little longer or with another end, for speculative decoding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.data.rows import pad
from glassformer.decode.run import memories
from glassformer.nn.cache import Cache
from glassformer.nn.transformer import Transformer


class Text(NamedTuple):
    """What a row is to read now, and after how many of its last ids logits are wanted."""

    row: int
    ids: Sequence[int]
    last: int = 1
    both_ways: int = 0
    """How many tokens at its start a prefix model reads in both directions."""


class Together:
    """Rows that began together and share a cache. A finished row is padding until it is removed."""

    def __init__(self, rows: list[int], cache: Cache, memory: Tensor | None, memory_keep: Tensor | None) -> None:
        self.rows, self.cache, self.memory, self.memory_keep = rows, cache, memory, memory_keep

    def select(self, places: Int[Tensor, " rows"]) -> None:
        """Keeps the rows at these places."""
        self.rows = [self.rows[place] for place in places.tolist()]
        self.cache.select(places)
        self.memory = None if self.memory is None else self.memory[places]
        self.memory_keep = None if self.memory_keep is None else self.memory_keep[places]


class Reader:
    """A model that reads several texts at once and reads no token twice that is still at the same place.

    Each forward pass reads the new tokens of all rows that share a cache, with padding after the shorter ones. Tokens
    that a row no longer has are removed from that row's part of the cache. Rows that must start anew, because they lost
    their first tokens, share another cache from then on.
    """

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]] | None = None) -> None:
        self.model, self.device = model, next(model.parameters()).device
        self._memory, self._memory_keep = memories(model, sources)
        self._read: dict[int, Text] = {}
        self._of: dict[int, Together] = {}

    def behind(self, texts: Sequence[Text]) -> list[Float[Tensor, "T V"]]:
        """Return the logits after each of the `last` ids of each text."""
        starts = {text.row: self._stands(text) for text in texts}
        if anew := [row for row, start in starts.items() if start == 0]:
            memory, keep = (None if each is None else each[anew] for each in (self._memory, self._memory_keep))
            self._of |= dict.fromkeys(anew, Together(anew, self.model.new_cache(whole=True), memory, keep))
        asked: dict[Together, list[Text]] = {}
        for text in texts:
            asked.setdefault(self._of[text.row], []).append(text)
        found: dict[int, Tensor] = {}
        for together, these in asked.items():
            found |= self._go_on(together, {text.row: text for text in these}, starts)
        return [found[text.row] for text in texts]

    def keep(self, rows: Collection[int]) -> None:
        """Keep only these rows. The others are removed once they are a quarter, as copying a cache costs time too."""
        self._of = {row: together for row, together in self._of.items() if row in rows}
        for together in {*self._of.values()}:
            places = [i for i, row in enumerate(together.rows) if self._of.get(row) is together]
            if len(places) <= 0.75 * len(together.rows):
                together.select(torch.tensor(places, device=self.device))

    def _stands(self, text: Text) -> int:
        """How many of a text's ids are already in the cache and can be kept."""
        before = self._read.get(text.row)
        if before is None or before.both_ways != text.both_ways:
            return 0
        return min(same(before.ids, text.ids), len(text.ids) - text.last)

    def _go_on(self, together: Together, texts: dict[int, Text], starts: dict[int, int]) -> dict[int, Tensor]:
        """Read what is new of these texts in one forward pass; return the logits by row."""
        cache, begins = together.cache, together.cache.length == 0
        if not begins and any(starts[row] < len(self._read[row].ids) for row in texts):
            lengths = [starts.get(row, cache.length) for row in together.rows]
            cache.take_back(torch.tensor(lengths, device=self.device))
        new = [texts[row].ids[starts[row] :] if row in texts else () for row in together.rows]
        tokens, keep = pad(new)
        both_ways = [texts[row].both_ways for row in together.rows] if begins else []
        hidden = self.model.hidden(
            tokens.to(self.device),
            keep=None if keep is None else keep.to(self.device),
            memory=together.memory,
            source_keep=together.memory_keep,
            prefix=torch.tensor(both_ways, device=self.device) if any(both_ways) else None,
            cache=cache,
        )
        self._read |= texts
        asked = [(i, row, texts[row].last) for i, row in enumerate(together.rows) if row in texts]
        logits = self.model.head(torch.cat([hidden[i, len(new[i]) - last : len(new[i])] for i, _, last in asked]))
        return dict(zip([row for _, row, _ in asked], logits.split([last for *_, last in asked]), strict=True))


def same(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
