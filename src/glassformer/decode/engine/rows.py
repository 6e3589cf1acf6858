"""The rows of an engine (texts being written) and the passages that are read for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from glassformer.base.errors import DataError
from glassformer.base.shapes import Float, Tensor
from glassformer.decode.choose.context import Choose, Context
from glassformer.decode.engine.requests import FAILED, Likely, Ticket, Written, places_of

SCORED = 256
"""Places of a prompt whose logits are made at a time: with a large vocabulary, those of all would not fit."""


@dataclass(eq=False)
class Row:
    """One text that is being written."""

    ticket: Ticket
    text: int
    written: list[int] = field(default_factory=list[int])
    begin: int = 0
    """How many tokens were left out at its front when it was last read from the start."""
    prompt: Sequence[Likely] | None = None
    """What is to be reported of its prompt with its first token."""

    @property
    def over(self) -> bool:
        """Whether the text ended or was cancelled."""
        return self.text in self.ticket.ended


@dataclass(frozen=True, eq=False)
class Passage:
    """Ids to be read at once, and the rows that continue after them."""

    ids: Sequence[int]
    rows: list[Row]
    source: Sequence[int] | None
    both_ways: int
    """How many ids at the start belong to the prompt, which a prefix model reads in both directions."""
    scored: int | None = None
    """How many most likely tokens to report with each of the ids; None: nothing is reported of them."""

    @property
    def reads(self) -> int:
        """The number of tokens to read: of the ids or of the source, whichever is longer."""
        return max(len(self.ids), places_of(self.source))

    @classmethod
    def of(cls, ticket: Ticket, begin: int = 0) -> Passage:
        """The prompt of a request without its first `begin` tokens, for all its texts."""
        ids = ticket.request.prompt[begin:]
        rows = [Row(ticket, text, begin=begin) for text in range(ticket.request.n)]
        scored = ticket.request.logprobs if ticket.request.scored else None
        return cls(ids, rows, ticket.request.source, len(ids), scored)

    @classmethod
    def again(cls, row: Row, begin: int) -> Passage:
        """All tokens of a row except its first `begin`."""
        request, row.begin = row.ticket.request, begin
        ids = [*request.prompt, *row.written][begin:]
        return cls(ids, [row], request.source, max(0, len(request.prompt) - begin))


def chosen(choose: Choose, logits: Float[Tensor, "B V"], context: Context) -> list[int]:
    """Call `choose` and check its result. Errors: those of `choose`; `DataError` unless it gives one id per row."""
    ids: list[int] = choose(logits, context).tolist()
    n, size = logits.shape
    if len(ids) != n or not all(0 <= id < size for id in ids):
        raise DataError(f"choose must return one id from 0 to {size - 1} for each row; got {ids!r:.60} for {n} rows.")
    return ids


def failure(ticket: Ticket, text: int, error: BaseException) -> Written:
    """The reply for a text that an error ended. One that is no `Exception` is told as the cause of a `RuntimeError`."""
    if not isinstance(error, Exception):
        told = RuntimeError(f"{type(error).__name__}: {error}")
        told.__cause__ = error
        error = told
    return Written(ticket, text, -1, FAILED, error=error)


def ended(written: list[Written]) -> list[Written]:
    """Note on the tickets which texts end with these replies; return the replies."""
    for each in written:
        if each.end:
            each.ticket.ended.add(each.text)
    return written


def with_likely(written: list[Written], logits: Float[Tensor, "B V"]) -> list[Written]:
    """Add log-probabilities to the replies whose requests ask for them; row i of the logits belongs to reply i."""
    asked = {i: each.ticket.request.logprobs for i, each in enumerate(written) if each.error is None}
    places = [i for i, k in asked.items() if k is not None]
    if not places:
        return written
    counts = [asked[i] or 0 for i in places]
    found = likely(logits[torch.tensor(places, device=logits.device)], [written[i].id for i in places], counts)
    told = list(written)
    for i, each in zip(places, found, strict=True):
        told[i] = told[i]._replace(likely=each)
    return told


def likely(logits: Float[Tensor, "rows V"], ids: Sequence[int], counts: Sequence[int]) -> list[Likely]:
    """The log-probability of one id in each row, and as many of the likeliest as `counts` says."""
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    top = log_p.topk(min(max(counts, default=0), log_p.shape[-1]))
    rows = zip(log_p, ids, top.values.tolist(), top.indices.tolist(), counts, strict=True)
    return [Likely(float(row[id]), list(zip(best[:k], values[:k], strict=True))) for row, id, values, best, k in rows]


def prompt_likely(
    head: Callable[[Tensor], Tensor], hidden: Float[Tensor, "T D"], ids: Sequence[int], k: int
) -> list[Likely]:
    """What the model gave to each of T ids after the first, `SCORED` places at a time."""
    found: list[Likely] = []
    for start in range(0, len(ids) - 1, SCORED):
        after = ids[start + 1 : start + SCORED + 1]
        found += likely(head(hidden[start : start + len(after)]), after, [k] * len(after))
    return found
