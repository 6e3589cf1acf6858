"""Samples of what a model writes, for an evaluation on running text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from glassformer.data.batch import Batch
from glassformer.data.running.token_file import TokenFile
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS, Tokenizer
from glassformer.decode.answer import answer, nothing
from glassformer.decode.generate import generate
from glassformer.nn.transformer import Transformer
from glassformer.train.recipe import Recipe
from glassformer.train.record.events import Sample
from glassformer.train.sources.text_batches import FOLLOWED, Reader

USUAL = 64
"""Tokens of a continuation if decode.max_new_tokens is not set."""


@torch.no_grad()
def text_samples(
    model: Transformer,
    tokens: TokenFile,
    reader: Reader,
    recipe: Recipe,
    tokenizer: Tokenizer,
    poll: Callable[[], None] = nothing,
) -> list[Sample]:
    """Samples at places far apart: continuations of the text, or what was hidden in a window of it.

    As many as the recipe's `training.samples`.
    """
    count, window = recipe.training.samples, min(recipe.data.window, len(tokens))
    if not count:
        return []
    starts = (len(tokens) - window) * np.arange(count) // max(1, count - 1)
    if reader.objective in FOLLOWED:
        limit = recipe.decode.max_new_tokens or USUAL
        rows, prefix = tokens.take(starts, window).tolist(), reader.objective == "prefix"
        return continuations(model, rows, limit, tokenizer, poll, prefix, apart=reader.how.document_mask)
    batch = reader.batch(tokens, starts, window)
    if batch.labels is not None:
        return filled(model, batch, batch.labels, tokenizer)
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
    apart: bool,
) -> list[Sample]:
    """Half a window as the prompt, the text that follows it, and the model's greedy continuation.

    Prompt and continuation fit in one window, because the model was trained on nothing longer. If documents are kept
    `apart`, the prompt is cut to its last document.
    """
    read = max(1, len(rows[0]) // 2)
    write = min(len(rows[0]) - read, limit)
    prompts = [last_document(row[:read]) if apart else row[:read] for row in rows]
    written: list[list[int]] = [[] for _ in rows]
    for step in generate(model, prompts=prompts, max_new_tokens=write, prefix=prefix):
        poll()
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return [
        Sample(*(shown(ids, tokenizer) for ids in (prompt, row[read : read + write], own)))
        for prompt, row, own in zip(prompts, rows, written, strict=True)
    ]


def last_document(ids: Sequence[int]) -> Sequence[int]:
    """The ids from the last <bos> on; all of them if there is none."""
    return ids[max((place for place, id in enumerate(ids) if id == BOS), default=0) :]


def filled(model: Transformer, batch: Batch, labels: torch.Tensor, tokenizer: Tokenizer) -> list[Sample]:
    """Windows with hidden tokens, the original windows, and the model's guesses for the hidden tokens."""
    there = batch.to(next(model.parameters()).device)
    best = model(there.tokens, keep=there.keep, documents=there.documents).argmax(-1).cpu()
    guess = torch.where(batch.tokens == labels, batch.tokens, best)
    rows = zip(batch.tokens.tolist(), labels.tolist(), guess.tolist(), strict=True)
    return [Sample(*(shown(ids, tokenizer) for ids in row)) for row in rows]


def real(ids: Sequence[int]) -> list[int]:
    """The ids without the special ones that a batch adds at both ends."""
    ends = {PAD, BOS, EOS}
    inner = [place for place, id in enumerate(ids) if id not in ends]
    return list(ids[inner[0] : inner[-1] + 1]) if inner else []


def shown(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text of ids, with the names of special tokens."""
    parts: list[str] = []
    stretch: list[int] = []
    for id in ids:
        if id < len(SPECIALS):
            parts += [tokenizer.decode(stretch), SPECIALS[id]]
            stretch = []
        else:
            stretch.append(id)
    return "".join([*parts, tokenizer.decode(stretch)])
