"""The rows of an engine (texts being written) and the passages that are read for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from glassformer.decode.choose.context import Choose, Context
from glassformer.decode.engine.requests import FAILED, Likely, Ticket, Written, places_of
from glassformer.foundation.errors import DataError
from glassformer.foundation.shapes import Float, Tensor


@dataclass(eq=False)
class Row:
    """One text that is being written."""

    ticket: Ticket
    text: int
    written: list[int] = field(default_factory=list[int])
    begin: int = 0
    """How many tokens were left out at its front when it was last read from the start."""

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

    @property
    def reads(self) -> int:
        """The number of tokens to read: of the ids or of the source, whichever is longer."""
        return max(len(self.ids), places_of(self.source))

    @classmethod
    def of(cls, ticket: Ticket, begin: int = 0) -> Passage:
        """The prompt of a request without its first `begin` tokens, for all its texts."""
        ids = ticket.request.prompt[begin:]
        rows = [Row(ticket, text, begin=begin) for text in range(ticket.request.n)]
        return cls(ids, rows, ticket.request.source, len(ids))

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


def failure(row: Row, error: Exception) -> Written:
    """The reply for a row that an error ended."""
    return Written(row.ticket, row.text, -1, FAILED, error=error)


def with_likely(written: list[Written], logits: Float[Tensor, "B V"]) -> list[Written]:
    """Add log-probabilities to the replies whose requests ask for them; row i of the logits belongs to reply i."""
    asked = {i: each.ticket.request.logprobs for i, each in enumerate(written) if each.error is None}
    places = [i for i, k in asked.items() if k is not None]
    if not places:
        return written
    wide = logits[torch.tensor(places, device=logits.device)].to(torch.promote_types(logits.dtype, torch.float32))
    log_p = wide.log_softmax(-1)
    top = log_p.topk(min(max(asked[i] or 0 for i in places), log_p.shape[-1]))
    told = list(written)
    for row, values, ids, i in zip(log_p, top.values.tolist(), top.indices.tolist(), places, strict=True):
        k = asked[i] or 0
        told[i] = told[i]._replace(likely=Likely(float(row[told[i].id]), list(zip(ids[:k], values[:k], strict=True))))
    return told
