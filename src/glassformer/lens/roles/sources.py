"""Where the sequences of a probe come from: a task, asked for held-out sources of a kind; files; running text."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from glassformer.data.batch import Batch, collate
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.sequences import Sequences
from glassformer.data.synthetic import TASKS, make_pairs
from glassformer.lens.ablate import all_heads
from glassformer.lens.roles.probe import Pairs
from glassformer.model.transformer import Transformer
from glassformer.train.recipe import Recipe
from glassformer.train.sources.text_batches import reader_of
from glassformer.train.sources.text_data import SCORED_WITH, TextSplit

TRIES = 400
"""Draws for one source, before a length is held to have no more of them; a twentieth is held out for testing."""
MOST_LENGTHS = 5
MOST_WEIGHTS = 100_000_000
"""Attention weights that are kept at a time, 4 bytes each."""
BATCH = 32
"""Windows read together."""
MOST_TOKENS = 8192
"""Of running text, that a model is asked with each head and without."""


def collated(layout: str) -> Callable[[Pairs], Batch]:
    """What makes a batch of pairs in the layout of a run."""

    def build(pairs: Pairs) -> Batch:
        encoded = Encoded(Sequences([list(source) for source, _ in pairs]), Sequences([list(t) for _, t in pairs]))
        return collate(encoded, range(len(pairs)), layout)

    return build


def held_out(
    data: DataConfig, tokenizers: Tokenizers, n: int, seed: int, *, repeats: bool
) -> list[tuple[list[int], list[int]]]:
    """Up to `n` pairs of a task of equal lengths that belong to its test split, as ids, each source once.

    With `repeats` a symbol comes again in each source, which is no palindrome; without, none does. Some lengths, evenly
    spread. Empty where there are none, as for sources longer than there are symbols.
    """
    task, draw = TASKS[data.task], Random(seed)
    few = DataConfig(task=data.task, symbols=data.symbols, min_length=data.min_length, max_length=data.max_length,
                     dev_size=1, train_size=200)  # fmt: skip
    symbols = sorted({word for pair in make_pairs(few, "train", seed) for word in pair.source.split()})
    longest = data.max_length if repeats else min(data.max_length, len(symbols))
    lengths = spread(max(2, data.min_length), longest)
    found: dict[str, tuple[list[int], list[int]]] = {}
    while lengths and len(found) < n:
        length = lengths[len(found) % len(lengths)]
        for _ in range(TRIES):
            words = draw.choices(symbols, k=length) if repeats else draw.sample(symbols, length)
            source = " ".join(words)
            wanted = not repeats or (len({*words}) < length and words != words[::-1])
            if wanted and source not in found and task.split_of(source) == "test":
                found[source] = (tokenizers.source.encode(source), tokenizers.target.encode(task.target(source)))
                break
        else:
            lengths.remove(length)
    return list(found.values())


def spread(first: int, last: int) -> list[int]:
    """At most `MOST_LENGTHS` whole numbers from first to last, evenly; none where last is below first."""
    if last < first:
        return []
    count = min(MOST_LENGTHS, last - first + 1)
    return sorted({round(float(each)) for each in np.linspace(first, last, count)})


def real_pairs(encoded: Encoded, n: int, model: Transformer | None = None) -> list[tuple[list[int], list[int]]]:
    """The first `n` pairs; of a model whose weights are to be kept, fewer where they are long."""
    pairs = [(encoded.source[row], encoded.target[row]) for row in range(min(n, len(encoded)))]
    if model is None:
        return pairs
    while len(pairs) > 1 and len(pairs) * len(all_heads(model)) * longest(pairs) ** 2 > MOST_WEIGHTS:
        pairs = pairs[: len(pairs) // 2]
    return pairs


def longest(pairs: Pairs) -> int:
    """Tokens of the longest side, with two special ones."""
    return 2 + max(max(len(source), len(target)) for source, target in pairs)


def windows(recipe: Recipe, split: TextSplit, tokenizers: Tokenizers, n: int, model: Transformer) -> list[Batch]:
    """Windows of a text, evenly spread, as the run's objective reads them: up to `n`, no more than is quick."""
    width = recipe.data.window
    most = max(1, min(MOST_WEIGHTS // (len(all_heads(model)) * (width + 2) ** 2), MOST_TOKENS // width))
    last = max(len(split.tokens) - width - 1, 0)
    starts = np.unique(np.linspace(0, last, min(n, most, last // width + 1)).astype(np.int64))
    reader = reader_of(recipe.data, tokenizers.target, SCORED_WITH)
    length = min(width, len(split.tokens) - 1)
    return [
        reader.batch(split.tokens, starts[first : first + BATCH], length, step=first)
        for first in range(0, len(starts), BATCH)
    ]
