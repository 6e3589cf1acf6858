"""Drafts for speculative decoding: a smaller model, or the text so far, guesses the next tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.draw import pick
from glassformer.decode.choose.repeats import ends_alike
from glassformer.decode.reader import Reader, Text


class Guess(NamedTuple):
    """Guessed tokens, and the distributions from which they were drawn; None: each had probability 1."""

    tokens: list[int]
    shares: Float[Tensor, "T V"] | None = None


class Wanted(NamedTuple):
    """A request for a guess: the row of the call, the ids that it reads, and the most tokens to guess."""

    row: int
    ids: Sequence[int]
    most: int


Draft = Callable[[Sequence[Wanted], Context], list[Guess]]
"""Returns a guess for each wanted row, possibly with fewer tokens or none; the context describes the same rows."""


class ModelDraft:
    """A smaller model that draws its guesses as the larger one draws its tokens, for all rows together."""

    def __init__(
        self,
        reader: Reader,
        mass: Callable[[Tensor, Context], Tensor],
        uniforms: Callable[[Context], Sequence[float]],
        eos: int,
    ) -> None:
        self.reader, self.mass, self.uniforms, self.eos = reader, mass, uniforms, eos

    def __call__(self, wanted: Sequence[Wanted], context: Context) -> list[Guess]:
        """Guess up to as many tokens as wanted: fewer if the draft model's context is full, and none after `eos`."""
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
    """Prompt lookup (Saxena 2023): guess what followed when the text last had its present last `most` ids, or fewer.

    The guess has probability 1. There is no guess if the last id is new, and none after `eos`.
    """

    def __init__(self, most: int, eos: int) -> None:
        self.most, self.eos = most, eos

    def __call__(self, wanted: Sequence[Wanted], context: Context) -> list[Guess]:
        """Guess what followed before, for each row."""
        guessed = (followed(each.ids, each.most, self.most) for each in wanted)
        return [Guess(ids[: ids.index(self.eos) + 1] if self.eos in ids else ids) for ids in guessed]


def followed(ids: Sequence[int], n: int, most: int) -> list[int]:
    """Up to `n` ids after the earlier place whose preceding ids best match the end of `ids` (up to `most` ids)."""
    if n == 0:
        return []
    alike = [min(length, most) for length in ends_alike(ids)]
    back = max(range(1, len(alike)), key=alike.__getitem__, default=0)  # among equals, the nearest to the end
    return [*ids[len(ids) - back :][:n]] if alike[back] else []


def grown(context: Context, more: Sequence[tuple[int, Sequence[int]]]) -> Context:
    """Select rows of a context by their places (repeats allowed), and append these tokens to what each wrote."""
    return Context(
        [context.numbers[i] for i, _ in more],
        [context.prompts[i] for i, _ in more],
        [[*context.written[i], *tokens] for i, tokens in more],
    )
