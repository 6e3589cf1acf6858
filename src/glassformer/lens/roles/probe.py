"""What heads are diagnosed with: sequences in which no token comes twice, a control in which some do, and questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glassformer.data.batch import Batch
from glassformer.data.rows import pad
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Bool, Tensor
from glassformer.train.objective import Objective, Targets, next_token

Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
"""(source, target) as ids, without special tokens."""


@dataclass(frozen=True)
class Probe:
    """Data to diagnose the heads of a model with."""

    name: str
    """As in "reverse/test/distinct"."""
    own: Batch
    """In which roles are scored; but for texts no token comes twice in a sequence."""
    control: Batch | None
    """In which tokens come again; none where they do in `own`."""
    scored: Sequence[Batch]
    """What the model is asked with its heads and without some of them."""
    objective: Objective
    """What a batch asks for."""
    metric: str = "exact_match"
    """Of the answers: exact_match, accuracy (of labels), token_accuracy."""
    ids: range = range(0)
    """Those of ordinary tokens, for what is told by weights."""

    @property
    def n_sequences(self) -> int:
        """In which roles are scored."""
        return len(self.own.tokens)

    @property
    def told(self) -> str:
        """How many sequences of how many tokens, special ones counted, and where they come from."""
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
    """The probe of a model that answers sources; `collate` makes the batch of some pairs in the model's layout."""
    if not own or not scored:
        raise ConfigError(f"A probe needs at least one sequence; {name} has none. Give pairs to diagnose with.")
    rows = sorted(scored, key=lambda pair: len(pair[0]))  # lengths together, so that there is little padding
    batches = [collate(rows[first : first + batch_size]) for first in range(0, len(rows), batch_size)]
    return Probe(name, collate(own), collate(control) if control else None, batches, objective, metric, ids)


def induction_probe(
    ids: range, lengths: Sequence[int], n: int = 400, *, begin: int | None = BOS, seed: int = 0
) -> Probe:
    """Random tokens and the same once more: s s, behind <bos> (Olsson et al. 2022); n rows, all lengths of s alike.

    No token comes twice in s, as far as `ids` has enough. In the second half an induction head reads what came after
    the same token in the first. There the model is asked for the next token. `begin` None: without <bos>.
    """
    draw = random.Random(seed)
    halves = [drawn(draw, ids, lengths[row % len(lengths)]) for row in range(n)]
    own = Batch(*pad([[*([] if begin is None else [begin]), *half, *half] for half in halves]))
    return Probe("induction", own, None, [own], next_of_repeated, "token_accuracy", ids)


def drawn(draw: random.Random, ids: range, length: int) -> list[int]:
    """`length` different ids, or where there are not so many, all of them and some again."""
    again = draw.choices(ids, k=max(length - len(ids), 0))
    return [*draw.sample(ids, length - len(again)), *again]


def decoder_rows(pairs: Pairs) -> Batch:
    """For a decoder alone: <bos> source <sep> target <eos>. `next_of_answer` asks for the target."""
    return Batch(*pad([[BOS, *source, SEP, *target, EOS] for source, target in pairs]))


def next_of_answer(batch: Batch) -> Targets:
    """The next token, from the first <sep> of each row on."""
    asked = next_token(batch)
    return only(asked, (asked.inputs == SEP).cumsum(1) > 0)


def next_of_repeated(batch: Batch) -> Targets:
    """The next token behind one that has come before in its row."""
    asked = next_token(batch)
    same = asked.inputs[:, :, None] == asked.inputs[:, None, :]
    return only(asked, (same & torch.ones_like(same).tril(-1)).any(-1))


def only(asked: Targets, where: Bool[Tensor, "N T"]) -> Targets:
    """Targets that are asked for at some places alone."""
    return asked._replace(keep=where if asked.keep is None else where & asked.keep)
