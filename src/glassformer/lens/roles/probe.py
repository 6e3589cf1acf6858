"""Probes, the data for a diagnosis: sequences without repeated tokens, a control with them, and data to score."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Tensor
from glassformer.data.batch import Batch, pad
from glassformer.data.config import DataConfig
from glassformer.data.dataset import Encoded, Tokenizers
from glassformer.data.synthetic import TASKS, make_pairs
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP
from glassformer.lens.ablate import all_heads
from glassformer.nn.transformer import Transformer
from glassformer.train.objective import Objective, Targets, next_token
from glassformer.train.recipe import Recipe
from glassformer.train.text_data import SCORED_WITH, TextSplit
from glassformer.train.text_score import reader_of

TRIES = 400
"""How many draws to try for one source before giving up on its length; a twentieth is held out for testing."""
MOST_LENGTHS = 5
MOST_WEIGHTS = 100_000_000
"""The most attention weights in memory at once, 4 bytes each."""
BATCH = 32
"""Windows per batch."""
MOST_TOKENS = 8192
"""The most tokens of running text on which a model is scored without each head."""


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


Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""(source, target) as ids, without special tokens."""


@dataclass(frozen=True)
class Probe:
    """Data to diagnose the heads of a model with."""

    name: str
    """For example "reverse/test/distinct"."""
    own: Batch
    """The sequences on which roles are scored; except in texts, no token repeats within a sequence."""
    control: Batch | None
    """Sequences with repeated tokens; None if those in `own` have them."""
    scored: Sequence[Batch]
    """What the model answers with all heads and without some."""
    objective: Objective
    """The targets of a batch."""
    metric: str = "exact_match"
    """The metric of the answers: exact_match, accuracy (of labels) or token_accuracy."""
    ids: range = range(0)
    """The ids of ordinary tokens, for figures computed from weights."""

    @property
    def n_sequences(self) -> int:
        """The number of sequences on which roles are scored."""
        return len(self.own.tokens)

    @property
    def told(self) -> str:
        """A description: how many sequences of how many tokens, special ones included, and their origin."""
        read = (self.own.tokens, self.own.keep) if self.own.source is None else (self.own.source, self.own.source_keep)
        tokens = torch.full((self.n_sequences,), read[0].shape[1]) if read[1] is None else read[1].sum(1)
        first, last = int(tokens.min()), int(tokens.max())
        long = f"{first}" if first == last else f"{first} to {last}"
        return f"{self.n_sequences} sequences of {long} tokens ({self.name})"


def pairs_probe(
    name: str,
    own: Pairs,
    control: Pairs | None,
    scored: Pairs,
    collate: Callable[[Pairs], Batch],
    objective: Objective,
    ids: range,
    *,
    metric: str = "exact_match",
    batch_size: int = 128,
) -> Probe:
    """Make the probe of a model that answers sources; `collate` makes a batch of pairs in the model's layout."""
    if not own or not scored:
        raise ConfigError(f"A probe needs at least one sequence; {name} has none. Give pairs to diagnose with.")
    rows = sorted(scored, key=lambda pair: len(pair[0]))  # by length, so that batches have little padding
    batches = [collate(rows[first : first + batch_size]) for first in range(0, len(rows), batch_size)]
    return Probe(name, collate(own), collate(control) if control else None, batches, objective, metric, ids)


def induction_probe(
    ids: range, lengths: Sequence[int], n: int = 400, *, begin: int | None = BOS, seed: int = 0
) -> Probe:
    """Make the induction probe: n rows <bos> s s with random tokens s (Olsson et al. 2022), all lengths equally often.

    No token repeats within s if `ids` has enough. In the second half, an induction head reads what came after the same
    token in the first half; there the model must predict the next token. `begin` None: without <bos>.
    """
    draw = random.Random(seed)
    halves = [drawn(draw, ids, lengths[row % len(lengths)]) for row in range(n)]
    own = Batch(*pad([[*([] if begin is None else [begin]), *half, *half] for half in halves]))
    return Probe("induction", own, None, [own], next_of_repeated, "token_accuracy", ids)


def drawn(draw: random.Random, ids: range, length: int) -> list[int]:
    """Draw `length` different ids or, if there are too few, all of them and some again."""
    again = draw.choices(ids, k=max(length - len(ids), 0))
    return [*draw.sample(ids, length - len(again)), *again]


def decoder_rows(pairs: Pairs) -> Batch:
    """Return rows <bos> source <sep> target <eos> for a decoder alone. `next_of_answer` asks for the target."""
    return Batch(*pad([[BOS, *source, SEP, *target, EOS] for source, target in pairs]))


def next_of_answer(batch: Batch) -> Targets:
    """Ask for the next token from the first <sep> of each row on."""
    asked = next_token(batch)
    return only(asked, (asked.inputs == SEP).cumsum(1) > 0)


def next_of_repeated(batch: Batch) -> Targets:
    """Ask for the next token after each token that has occurred before in its row."""
    asked = next_token(batch)
    same = asked.inputs[:, :, None] == asked.inputs[:, None, :]
    return only(asked, (same & torch.ones_like(same).tril(-1)).any(-1))


def only(asked: Targets, where: Bool[Tensor, "N T"]) -> Targets:
    """Restrict targets to some positions."""
    return asked._replace(keep=where if asked.keep is None else where & asked.keep)
