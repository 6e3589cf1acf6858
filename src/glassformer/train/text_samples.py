"""What a model writes, as examples of an evaluation on running text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from glassformer.data.token_file import TokenFile
from glassformer.data.vocabulary import BOS, EOS, PAD, SPECIALS, Tokenizer
from glassformer.decode.answer import answer, nothing
from glassformer.decode.generate import generate
from glassformer.model.transformer import Transformer
from glassformer.train.events import Sample
from glassformer.train.recipe import Recipe
from glassformer.train.text_batches import FOLLOWED, Reader

USUAL = 64
"""Tokens of a continuation, where decode.max_new_tokens is not set."""


@torch.no_grad()
def text_samples(
    model: Transformer,
    tokens: TokenFile,
    reader: Reader,
    recipe: Recipe,
    tokenizer: Tokenizer,
    poll: Callable[[], None] = nothing,
) -> list[Sample]:
    """As many as the recipe says, at places far apart: how the text goes on, or what was hidden in a window of it."""
    count, window = recipe.training.samples, min(recipe.data.window, len(tokens))
    if not count:
        return []
    starts = (len(tokens) - window) * np.arange(count) // max(1, count - 1)
    if reader.objective in FOLLOWED:
        limit = recipe.decode.max_new_tokens or USUAL
        rows, prefix = tokens.take(starts, window).tolist(), reader.objective == "prefix"
        return continuations(model, rows, limit, tokenizer, poll, prefix)
    batch = reader.batch(tokens, starts, window)
    if batch.labels is not None:
        return filled(model, batch.tokens, batch.labels, tokenizer)
    assert batch.source is not None
    sources, targets = ([real(row) for row in side.tolist()] for side in (batch.source, batch.tokens))
    longest = max(map(len, targets)) + 1
    answers = answer(model, sources, max_new_tokens=min(longest, recipe.decode.max_new_tokens or longest), poll=poll)
    rows = zip(sources, targets, (each.ids for each in answers), strict=True)
    return [Sample(*(shown(ids, tokenizer) for ids in row)) for row in rows]


def continuations(
    model: Transformer,
    rows: Sequence[Sequence[int]],
    limit: int,
    tokenizer: Tokenizer,
    poll: Callable[[], None],
    prefix: bool,
) -> list[Sample]:
    """Half a window as a prompt, what follows it in the text, and what the model goes on with, greedily.

    Prompt and continuation stay within the window, as nothing longer was trained on.
    """
    read = max(1, len(rows[0]) // 2)
    write = min(len(rows[0]) - read, limit)
    written: list[list[int]] = [[] for _ in rows]
    for step in generate(model, prompts=[row[:read] for row in rows], max_new_tokens=write, prefix=prefix):
        poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return [
        Sample(*(shown(ids, tokenizer) for ids in (row[:read], row[read : read + write], own)))
        for row, own in zip(rows, written, strict=True)
    ]


def filled(model: Transformer, tokens: torch.Tensor, labels: torch.Tensor, tokenizer: Tokenizer) -> list[Sample]:
    """Windows with hidden tokens, the windows themselves, and what the model has for the hidden ones."""
    device = next(model.parameters()).device
    best = model(tokens.to(device)).argmax(-1).cpu()
    guess = torch.where(tokens == labels, tokens, best)
    rows = zip(tokens.tolist(), labels.tolist(), guess.tolist(), strict=True)
    return [Sample(*(shown(ids, tokenizer) for ids in row)) for row in rows]


def real(ids: Sequence[int]) -> list[int]:
    """The ids without what a batch puts around them."""
    ends = {PAD, BOS, EOS}
    inner = [place for place, id in enumerate(ids) if id not in ends]
    return list(ids[inner[0] : inner[-1] + 1]) if inner else []


def shown(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text of ids, with special tokens by their names."""
    parts: list[str] = []
    stretch: list[int] = []
    for id in ids:
        if id < len(SPECIALS):
            parts += [tokenizer.decode(stretch), SPECIALS[id]]
            stretch = []
        else:
            stretch.append(id)
    return "".join([*parts, tokenizer.decode(stretch)])
