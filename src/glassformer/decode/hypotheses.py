"""The hypotheses of a beam search: those that go on, the answers found, and when no more can be found that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glassformer.base.errors import RowError

Lengths = Callable[[int], float]
"""From the number of tokens written (with <eos>) to the divisor of a log-probability; monotone and above 0."""


class Hypothesis(NamedTuple):
    """One finished answer: its ids without <eos>, its scores, and whether <eos> or a `stop` completed it."""

    ids: list[int]
    log_probability: float
    """Of all tokens written, <eos> included, in nats."""
    score: float
    complete: bool
    stopped: bool = False
    """Whether a `stop` ended it, and no <eos>."""


class Beginning(NamedTuple):
    """An unfinished hypothesis: its ids so far, their log-probability, and the row of the last step it extends."""

    ids: list[int]
    log_probability: float
    row: int


class UnansweredError(RowError):
    """The error for the first row of a call without an answer; it has what was found for the rows before."""

    def __init__(self, why: RowError, found: list[list[Hypothesis]]) -> None:
        super().__init__(why.before, why.row, why.after)
        self.found = found


@dataclass
class Search:
    """The beam of one row of the call, or one group of that beam."""

    row: int
    limit: int
    going: list[Beginning]
    found: list[Hypothesis] = field(default_factory=list[Hypothesis])
    closed: bool = False
    """Whether the search is done and runs on only to keep later groups of its row from its tokens."""


def open_rows(searches: Sequence[Search], groups: int) -> list[Search]:
    """The unfinished searches. All groups of a row end together, so none depends on when another's bound was met."""
    rows = {each.row // groups for each in searches if not each.closed}
    return [each for each in searches if each.going and each.row // groups in rows]


def together(searches: Sequence[Search], groups: int, width: int) -> list[list[Hypothesis]]:
    """Join what the groups of each row found: the best of each group, without duplicates."""
    found: list[list[Hypothesis]] = []
    for first in range(0, len(searches), groups):
        once: dict[tuple[int, ...], Hypothesis] = {}
        for search in searches[first : first + groups]:
            for each in best(search.found, width):
                once.setdefault((each.complete, *each.ids), each)
        found.append([*once.values()])
    return found


def done(search: Search, step: int, n_best: int, lengths: Lengths, stop_at: int | None) -> bool:
    """Whether no hypothesis can still become one of the `n_best`, or `stop_at` answers were found.

    A coverage penalty is never above 0, so the bound holds with one too.
    """
    if not search.going or (stop_at is not None and len(search.found) >= stop_at):
        return True
    if len(search.found) < n_best:
        return False
    highest = max(each.log_probability for each in search.going)
    bound = max(highest / lengths(length) for length in (step + 1, search.limit))
    return best(search.found, n_best)[-1].score >= bound


def best(found: Sequence[Hypothesis], n_best: int) -> list[Hypothesis]:
    """The best answers found, best first; among equals, the one found first comes first."""
    return sorted(found, key=lambda each: -each.score)[:n_best]
