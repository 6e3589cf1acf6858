"""The sequences of a probe: drawn from the held-out sources of a task, or taken from files or running text."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from glassformer.data.batch import Batch
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.sequences import Sequences
from glassformer.data.synthetic import TASKS, make_pairs
from glassformer.lens.ablate import all_heads
from glassformer.lens.roles.probe import Pairs
from glassformer.nn.transformer import Transformer
from glassformer.train.recipe import Recipe
from glassformer.train.sources.text_batches import reader_of
from glassformer.train.sources.text_data import SCORED_WITH, TextSplit
from glassformer.train.tasks.pairs import Pairs as PairsTask

TRIES = 400
"""How many draws to try for one source before giving up on its length; a twentieth is held out for testing."""
MOST_LENGTHS = 5
MOST_WEIGHTS = 100_000_000
"""The most attention weights in memory at once, 4 bytes each."""
BATCH = 32
"""Windows per batch."""
MOST_TOKENS = 8192
"""The most tokens of running text on which a model is scored without each head."""


def collated(task: PairsTask) -> Callable[[Pairs], Batch]:
    """Return a function that makes a batch of pairs as the task of a run does."""

    def build(pairs: Pairs) -> Batch:
        encoded = Encoded(Sequences([list(source) for source, _ in pairs]), Sequences([list(t) for _, t in pairs]))
        return task.batch(encoded, range(len(pairs)))

    return build


def held_out(
    data: DataConfig, tokenizers: Tokenizers, n: int, seed: int, *, repeats: bool
) -> list[tuple[list[int], list[int]]]:
    """Draw up to `n` different pairs, as ids, from the test split of a task with targets as long as their sources.

    With `repeats`, each source repeats a symbol and is no palindrome; without, no symbol repeats. A few lengths, evenly
    spread. Returns an empty list if there are no such pairs, as for sources longer than the number of symbols.
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
    """Return at most `MOST_LENGTHS` integers, evenly spread from first to last; none if last is below first."""
    if last < first:
        return []
    count = min(MOST_LENGTHS, last - first + 1)
    return sorted({round(float(each)) for each in np.linspace(first, last, count)})


def real_pairs(encoded: Encoded, n: int, model: Transformer | None = None) -> list[tuple[list[int], list[int]]]:
    """Return the first `n` pairs; with `model`, fewer if its attention weights for them exceed `MOST_WEIGHTS`."""
    pairs = [(encoded.source[row], encoded.target[row]) for row in range(min(n, len(encoded)))]
    if model is None:
        return pairs
    while len(pairs) > 1 and len(pairs) * len(all_heads(model)) * longest(pairs) ** 2 > MOST_WEIGHTS:
        pairs = pairs[: len(pairs) // 2]
    return pairs


def longest(pairs: Pairs) -> int:
    """Return the number of tokens of the longest side, plus two special ones."""
    return 2 + max(max(len(source), len(target)) for source, target in pairs)


def windows(recipe: Recipe, split: TextSplit, tokenizers: Tokenizers, n: int, model: Transformer) -> list[Batch]:
    """Return up to `n` evenly spread windows of a text as batches for the run's objective.

    `MOST_WEIGHTS` and `MOST_TOKENS` limit their number.
    """
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
