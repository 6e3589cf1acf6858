"""The rows of an engine: texts that are being written, and what is read for them."""

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
    """How many of its tokens were left out in front, when it was last read."""

    @property
    def over(self) -> bool:
        """Whether it ended, or nobody wants more of it."""
        return self.text in self.ticket.ended


@dataclass(frozen=True, eq=False)
class Passage:
    """Ids to be read at once, and the rows that go on behind them."""

    ids: Sequence[int]
    rows: list[Row]
    source: Sequence[int] | None
    both_ways: int
    """How many of the ids, from the first on, are of a prompt: those that a prefix model reads both ways."""

    @property
    def reads(self) -> int:
        """Tokens of the longer of the two that are read: the ids, and the source."""
        return max(len(self.ids), places_of(self.source))

    @classmethod
    def of(cls, ticket: Ticket, begin: int = 0) -> Passage:
        """The prompt of a request but its first `begin` tokens, for all its texts."""
        ids = ticket.request.prompt[begin:]
        rows = [Row(ticket, text, begin=begin) for text in range(ticket.request.n)]
        return cls(ids, rows, ticket.request.source, len(ids))

    @classmethod
    def again(cls, row: Row, begin: int) -> Passage:
        """All of a row but its first `begin` tokens."""
        request, row.begin = row.ticket.request, begin
        ids = [*request.prompt, *row.written][begin:]
        return cls(ids, [row], request.source, max(0, len(request.prompt) - begin))


def chosen(choose: Choose, logits: Float[Tensor, "B V"], context: Context) -> list[int]:
    """The token of each row. Errors: those of `choose`, and `DataError` where it gives others than one id a row."""
    ids: list[int] = choose(logits, context).tolist()
    n, size = logits.shape
    if len(ids) != n or not all(0 <= id < size for id in ids):
        raise DataError(f"A choice is one id from 0 to {size - 1} for each row; got {ids!r:.60} for {n} rows.")
    return ids


def failure(row: Row, error: Exception) -> Written:
    """What is told of a row that an error ended."""
    return Written(row.ticket, row.text, -1, FAILED, error=error)


def with_likely(written: list[Written], logits: Float[Tensor, "B V"]) -> list[Written]:
    """The same, with what the model gave each token where its request asks for it; row i of the logits is its own."""
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
