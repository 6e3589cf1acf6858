"""Who guesses the next tokens for speculative decoding: a smaller model, or the text itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from glassformer.data.vocabulary import EOS
from glassformer.decode.context import Context
from glassformer.decode.draw import pick
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.transformer import Transformer


class Guess(NamedTuple):
    """Tokens, and the probabilities that each of them was drawn from; none: each was certain."""

    tokens: list[int]
    shares: Float[Tensor, "T V"] | None = None


Draft = Callable[[Sequence[int], int, Context], Guess]
"""The ids that are read, how many tokens to guess at most, and the row as it is; fewer or none may come."""
NONE = Guess([])


def nobody(ids: Sequence[int], n: int, context: Context) -> Guess:
    """No guess."""
    return NONE


class Reader:
    """A model that reads one text, and reads no token twice that still stands where it stood.

    `both_ways` is how many tokens at its beginning a prefix model reads both ways.
    """

    def __init__(self, model: Transformer, source: Sequence[int] | None = None, both_ways: int = 0) -> None:
        self.model, self.device = model.eval(), next(model.parameters()).device
        self._memory = None if source is None else model.encode(torch.tensor([[*source, EOS]], device=self.device))
        self._both_ways = both_ways
        self._read: list[int] = []
        self._cache = model.new_cache(whole=True)

    def behind(self, ids: Sequence[int], last: int) -> Float[Tensor, "T V"]:
        """The logits behind each of the `last` ids."""
        start = min(same(self._read, ids), len(ids) - last)
        if start == 0:
            self._cache = self.model.new_cache(whole=True)
        elif start < len(self._read):
            self._cache.truncate(start)
        prefix = torch.tensor([self._both_ways], device=self.device) if self._both_ways and start == 0 else None
        tokens = torch.tensor([[*ids[start:]]], device=self.device)
        hidden = self.model.hidden(tokens, memory=self._memory, prefix=prefix, cache=self._cache)
        self._read = [*ids]
        return self.model.head(hidden[0, -last:])


def same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids at the beginning are the same."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class ModelDraft:
    """A smaller model that draws its guesses as the larger one draws its tokens."""

    def __init__(
        self,
        reader: Reader,
        mass: Callable[[Tensor, Context], Tensor],
        uniforms: Callable[[Context], Sequence[float]],
    ) -> None:
        self.reader, self.mass, self.uniforms = reader, mass, uniforms

    def __call__(self, ids: Sequence[int], n: int, context: Context) -> Guess:
        """Up to `n` guesses; fewer where its own context is full."""
        longest = self.reader.model.config.stack.max_len
        n = n if longest is None else min(n, longest - len(ids) + 1)
        tokens: list[int] = []
        drawn: list[Tensor] = []
        for _ in range(n):
            now = context._replace(written=[[*context.written[0], *tokens]])
            q = self.mass(self.reader.behind([*ids, *tokens], 1), now)
            tokens.append(int(pick(q, self.uniforms(now))))
            drawn.append(q)
        return Guess(tokens, torch.cat(drawn)) if tokens else NONE


def lookup_draft(ids: Sequence[int], n: int, context: Context, *, most: int) -> Guess:
    """What followed the last time that the text had its last `most` ids, or fewer, down to one (Saxena 2023).

    A guess is certain: all probability is on it. None where the last id is new.
    """
    for length in range(min(most, len(ids) - 1), 0, -1):
        tail = [*ids[len(ids) - length :]]
        for at in range(len(ids) - length - 1, -1, -1):
            if [*ids[at : at + length]] == tail and n > 0:
                return Guess([*ids[at + length : at + length + n]])
    return NONE
