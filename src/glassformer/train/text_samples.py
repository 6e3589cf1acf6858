"""What a model writes, as examples of an evaluation on running text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glassformer.data.token_file import TokenFile
from glassformer.data.vocabulary import Tokenizer
from glassformer.decode.answer import nothing
from glassformer.decode.generate import generate
from glassformer.model.transformer import Transformer
from glassformer.train.events import Sample
from glassformer.train.recipe import Recipe

USUAL = 64
"""Tokens of a continuation, where decode.max_new_tokens is not set."""


def continuations(
    model: Transformer, tokens: TokenFile, recipe: Recipe, tokenizer: Tokenizer, poll: Callable[[], None] = nothing
) -> list[Sample]:
    """Half a window of the text as a prompt, what follows it there, and what the model goes on with, greedily.

    Prompt and continuation stay within the window, as nothing longer was trained on.
    """
    count, window = recipe.training.samples, min(recipe.data.window, len(tokens))
    read = max(1, window // 2)
    write = min(window - read, recipe.decode.max_new_tokens or USUAL)
    if not count or not write:
        return []
    starts = (len(tokens) - read - write) * np.arange(count) // max(1, count - 1)
    rows = tokens.take(starts, read + write).tolist()
    written: list[list[int]] = [[] for _ in rows]
    for step in generate(model, prompts=[row[:read] for row in rows], max_new_tokens=write):
        poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return [
        Sample(tokenizer.decode(row[:read]), tokenizer.decode(row[read:]), tokenizer.decode(ids))
        for row, ids in zip(rows, written, strict=True)
    ]
