"""Who guesses the next tokens for speculative decoding: a smaller model, or the text itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from glassformer.decode.choose.context import Context
from glassformer.decode.choose.draw import pick
from glassformer.decode.choose.repeats import ends_alike
from glassformer.decode.reader import Reader, Text
from glassformer.foundation.shapes import Float, Tensor


class Guess(NamedTuple):
    """Tokens, and the probabilities that each of them was drawn from; none: each was certain."""

    tokens: list[int]
    shares: Float[Tensor, "T V"] | None = None


class Wanted(NamedTuple):
    """The row of a call, the ids that are read of it, and how many tokens to guess at most."""

    row: int
    ids: Sequence[int]
    most: int


Draft = Callable[[Sequence[Wanted], Context], list[Guess]]
"""A guess for each row that goes on, of which fewer tokens or none may come; the context has the rows as they are."""


class ModelDraft:
    """A smaller model that draws its guesses as the larger one draws its tokens, those of all rows together."""

    def __init__(
        self,
        reader: Reader,
        mass: Callable[[Tensor, Context], Tensor],
        uniforms: Callable[[Context], Sequence[float]],
        eos: int,
    ) -> None:
        self.reader, self.mass, self.uniforms, self.eos = reader, mass, uniforms, eos

    def __call__(self, wanted: Sequence[Wanted], context: Context) -> list[Guess]:
        """Up to as many guesses as wanted; fewer where its own context is full, and none behind `eos`."""
        self.reader.keep({each.row for each in wanted})
        longest = self.reader.model.config.stack.max_len
        most = [each.most if longest is None else min(each.most, longest - len(each.ids) + 1) for each in wanted]
        tokens: list[list[int]] = [[] for _ in wanted]
        drawn: list[list[Tensor]] = [[] for _ in wanted]
        for n in range(max(most, default=0)):
            live = [i for i in range(len(wanted)) if most[i] > n]
            if not live:
                break
            now = grown(context, [(i, tokens[i]) for i in live])
            logits = self.reader.behind([Text(wanted[i].row, [*wanted[i].ids, *tokens[i]]) for i in live])
            q = self.mass(torch.cat(logits), now)
            for i, token, share in zip(live, pick(q, self.uniforms(now)).tolist(), q, strict=True):
                tokens[i].append(token)
                drawn[i].append(share)
                most[i] = n + 1 if token == self.eos else most[i]
        return [Guess(ids, torch.stack(q) if q else None) for ids, q in zip(tokens, drawn, strict=True)]


class LookupDraft:
    """What followed the last time that the text had its last `most` ids, or fewer, down to one (Saxena 2023).

    A guess is certain: all probability is on it. None where the last id is new, and none behind `eos`.
    """

    def __init__(self, most: int, eos: int) -> None:
        self.most, self.eos = most, eos

    def __call__(self, wanted: Sequence[Wanted], context: Context) -> list[Guess]:
        """What followed in each text."""
        guessed = (followed(each.ids, each.most, self.most) for each in wanted)
        return [Guess(ids[: ids.index(self.eos) + 1] if self.eos in ids else ids) for ids in guessed]


def followed(ids: Sequence[int], n: int, most: int) -> list[int]:
    """Up to `n` ids behind the last place that has the last `most` ids, or fewer."""
    if n == 0:
        return []
    alike = [min(length, most) for length in ends_alike(ids)]
    back = max(range(1, len(alike)), key=alike.__getitem__, default=0)  # of equals the nearest to the end
    return [*ids[len(ids) - back :][:n]] if alike[back] else []


def grown(context: Context, more: Sequence[tuple[int, Sequence[int]]]) -> Context:
    """Rows of a context by their places, one as often as it comes, with these tokens behind what each wrote."""
    return Context(
        [context.numbers[i] for i, _ in more],
        [context.prompts[i] for i, _ in more],
        [[*context.written[i], *tokens] for i, tokens in more],
    )
