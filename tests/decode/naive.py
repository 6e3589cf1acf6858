"""Greedy decoding by its definition, one row alone, and what `generate` gave to each row of a batch."""

from collections.abc import Sequence

import torch

from glassformer import Transformer, generate
from glassformer.data.tokens.vocabulary import EOS


def naive(network: Transformer, source: Sequence[int] | None, prompt: Sequence[int], limit: int) -> list[int]:
    """The definition of greedy decoding, but for its end."""
    written: list[int] = []
    for _ in range(limit):
        inputs = {} if source is None else {"source": torch.tensor([[*source, EOS]])}
        logits = network(torch.tensor([[*prompt, *written]]), **inputs)
        written.append(int(logits[0, -1].argmax()))
    return written


def written(steps, n: int) -> list[list[int]]:
    """What steps gave to each of n rows."""
    found: list[list[int]] = [[] for _ in range(n)]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            found[row].append(token)
    return found


def collected(network: Transformer, n_rows: int, **settings) -> list[list[int]]:
    """What `generate` gave each row; a row that was left out once must not come again."""
    written: list[list[int]] = [[] for _ in range(n_rows)]
    active = list(range(n_rows))
    for step in generate(network, **settings):
        assert len(step.rows) == len(step.tokens)
        assert set(step.rows) <= set(active)
        active = step.rows
        for row, token in zip(step.rows, step.tokens, strict=True):
            written[row].append(token)
    return written
