"""Probes, the data for a diagnosis: sequences without repeated tokens, a control with them, and data to score."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Tensor
from glassformer.data.batch import Batch
from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP
from glassformer.train.objective import Objective, Targets, next_token

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
