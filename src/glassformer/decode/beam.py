"""Beam search: at each step the likeliest beginnings of an answer go on together, and no end comes too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from glassformer.data.vocabulary import EOS
from glassformer.decode.context import Context, Filter
from glassformer.decode.generate import Run, begin_rows, check_writes, read_first
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.transformer import Transformer

Lengths = Callable[[int], float]
"""What a log-probability is divided by, from the number of tokens written, <eos> included; monotone and above 0."""


class Hypothesis(NamedTuple):
    """One answer: its ids without <eos>, and whether it came to its end."""

    ids: list[int]
    log_probability: float
    """In nats, of all tokens written, <eos> included."""
    score: float
    complete: bool


class Beginning(NamedTuple):
    """What goes on: the ids so far, their log-probability, and the row of the last step that it goes on from."""

    ids: list[int]
    log_probability: float
    row: int


@dataclass
class Search:
    """The beam of one row of the call."""

    limit: int
    going: list[Beginning]
    found: list[Hypothesis] = field(default_factory=list[Hypothesis])


def length_penalty(alpha: float) -> Lengths:
    """lp(Y) = ((5 + |Y|) / 6)^alpha (Wu et al. 2016, equation 14); 0: none, above: longer answers win more often."""
    return lambda length: ((5 + length) / 6) ** alpha


def beam_search(
    model: Transformer,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
    max_new_tokens: int | Sequence[int],
    beam: int,
    n_best: int = 1,
    lengths: Lengths | None = None,
    filters: Sequence[Filter] = (),
    early_stop: bool = False,
    eos: int = EOS,
    poll: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` answers to each row, best first, by log-probability over `lengths` (none: `length_penalty(0.6)`).

    At each step the 2 * beam likeliest tokens behind what goes on are looked at: of the first `beam` those that are
    `eos` end, and `beam` others go on. A row is done when nothing that goes on can still beat what it found: its
    log-probability only falls, so it is at best what it is now, over the most favourable length. With `early_stop` it
    is done when `beam` answers ended, as it is with one beam, which is the greedy choice. What reaches its limit of
    `max_new_tokens` is an answer too, not complete. Rows are as in `generate`. Errors: `ConfigError`, `DataError`.
    """
    check_writes(model)
    check_beam(beam, n_best)
    model.eval()
    normal = lengths or length_penalty(0.6)
    with torch.no_grad():
        rows = begin_rows(model, sources, prompts, max_new_tokens)
        run = read_first(model, rows)
        searches = [Search(limit, [Beginning([], 0.0, row)]) for row, limit in enumerate(rows.limits)]
        going = list(enumerate(searches))
        for step in range(1, max(rows.limits) + 1):
            if poll is not None:
                poll()
            hidden = model.hidden(
                run.tokens, keep=run.keep, memory=run.memory, source_keep=run.memory_keep, cache=run.cache
            )
            written = [each.ids for _, search in going for each in search.going]
            owners = [row for row, search in going for _ in search.going]
            logits = model.head(hidden[:, -1])
            for each in filters:
                logits = each(logits, Context(owners, [rows.prompts[row] for row in owners], written))
            extend([search for _, search in going], logits.double().log_softmax(-1), beam, eos, step, normal)
            stop_at = beam if early_stop or beam == 1 else None
            going = [(row, search) for row, search in going if not done(search, step, n_best, normal, stop_at)]
            if not going:
                break
            run = follow(run, [search for _, search in going])
    return [best(search, n_best) for search in searches]


def extend(
    searches: Sequence[Search],
    log_p: Float[Tensor, "rows V"],
    beam: int,
    eos: int,
    step: int,
    lengths: Lengths,
) -> None:
    """Each search one token on: the rows of `log_p` are what goes on in each of them, one search after the other."""
    size = log_p.shape[-1]
    totals = log_p.new_full((len(searches), max(len(each.going) for each in searches), size), -torch.inf)
    first = 0
    for i, search in enumerate(searches):
        sums = log_p.new_tensor([each.log_probability for each in search.going])
        totals[i, : len(sums)] = log_p[first : first + len(sums)] + sums[:, None]
        first += len(sums)
    top = totals.flatten(1).topk(min(2 * beam, totals[0].numel()), sorted=True)
    first = 0
    for search, values, places in zip(searches, top.values.tolist(), top.indices.tolist(), strict=True):
        begun, search.going = search.going, []
        for rank, (value, place) in enumerate(zip(values, places, strict=True)):
            if value == -torch.inf or len(search.going) == beam:
                break
            parent, token = divmod(place, size)
            ids = [*begun[parent].ids, token]
            if token != eos and step < search.limit:
                search.going.append(Beginning(ids, value, first + parent))
            elif rank < beam:
                complete = token == eos
                found = Hypothesis(ids[:-1] if complete else ids, value, value / lengths(step), complete)
                search.found.append(found)
        first += len(begun)


def done(search: Search, step: int, n_best: int, lengths: Lengths, stop_at: int | None) -> bool:
    """Whether nothing that goes on can be among the `n_best` any more, or `stop_at` answers were found."""
    if not search.going or (stop_at is not None and len(search.found) >= stop_at):
        return True
    if len(search.found) < n_best:
        return False
    highest = max(each.log_probability for each in search.going)
    bound = max(highest / lengths(length) for length in (step + 1, search.limit))
    return best(search, n_best)[-1].score >= bound


def best(search: Search, n_best: int) -> list[Hypothesis]:
    """The best answers found, best first; of equals the one found first."""
    return sorted(search.found, key=lambda each: -each.score)[:n_best]


def follow(run: Run, searches: Sequence[Search]) -> Run:
    """The next step: a row for each beginning that goes on, with the cache of the one it goes on from."""
    begun = [each for search in searches for each in search.going]
    rows = torch.tensor([each.row for each in begun], device=run.tokens.device)
    run.cache.select(rows)
    return run._replace(
        tokens=torch.tensor([[each.ids[-1]] for each in begun], device=run.tokens.device),
        keep=None,
        memory=None if run.memory is None else run.memory[rows],
        memory_keep=None if run.memory_keep is None else run.memory_keep[rows],
    )


def check_beam(beam: int, n_best: int) -> None:
    """Refuse a beam without room. Errors: `ConfigError`."""
    if beam < 1:
        raise ConfigError(f"beam must be at least 1; got {beam}. Try beam=4; 1 is greedy.")
    if not 1 <= n_best <= beam:
        raise ConfigError(f"n_best must be from 1 to beam={beam}; got {n_best}. Try n_best=1.")
