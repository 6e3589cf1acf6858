"""Continuous batching: rows that finished leave the batch, waiting ones enter, and the others go on meanwhile.

Orca (Yu et al. 2022, section 3.1, iteration-level scheduling) decides at each step, not for each batch, who is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from glassformer.data.rows import pad
from glassformer.data.vocabulary import EOS
from glassformer.decode.context import Choose, Context
from glassformer.decode.generate import check_writes
from glassformer.decode.requests import FAILED, Request, Ticket, Written, check_request, with_likely
from glassformer.decode.stream import ENDED, LIMITED
from glassformer.foundation.errors import BusyError, ConfigError
from glassformer.foundation.shapes import Float, Tensor
from glassformer.foundation.typed import is_of
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache


@dataclass(eq=False)
class Row:
    """One text that is being written."""

    ticket: Ticket
    text: int
    written: list[int] = field(default_factory=list[int])

    @property
    def over(self) -> bool:
        """Whether it ended, or nobody wants more of it."""
        return self.text in self.ticket.ended


@dataclass(frozen=True)
class Limits:
    """How much an engine takes at a time. Errors: `ConfigError`."""

    rows: int = 32
    """Texts written together."""
    tokens: int = 65_536
    """Rows times the longest of them: the room for keys and values, in tokens of each layer."""
    waiting: int = 256
    """Requests that wait for room."""
    reading: int = 4_096
    """Tokens of prompts read in one step, padding included; one prompt alone may have more."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not is_of(value, (int,)) or value < 1:
                raise ConfigError(f"{name} must be a whole number from 1 on; got {value!r:.40}. Try {name}=32.")


class Engine:
    """Writes what was asked for, a token a step for each row; each row gets what it would get alone.

    One thread steps; `submit` and `cancel` may be called from one other. `prefix`: the tokens of a prompt read one
    another both ways, as in `generate`.
    """

    def __init__(self, model: Transformer, limits: Limits | None = None, *, eos: int = EOS, prefix: bool = False):
        check_writes(model)
        self.model, self.limits, self.eos, self.prefix = model.eval(), limits or Limits(), eos, prefix
        self.device = next(model.parameters()).device
        self.waiting: deque[Ticket] = deque()
        self.rows: list[Row] = []
        self._slots = model.new_slots(self.limits.rows)

    @property
    def busy(self) -> bool:
        """Whether a step has something to do."""
        return bool(self.waiting or self.rows)

    def submit(self, request: Request) -> Ticket:
        """Takes a request in; its first tokens come with the step that has room for all its texts.

        Errors: `ConfigError` and `DataError` for what cannot be written, `BusyError` where too many wait.
        """
        check_request(self.model, request)
        if request.n > self.limits.rows:
            raise ConfigError(
                f"At most {self.limits.rows} texts are written together; got n={request.n}. Ask for fewer."
            )
        if request.n * request.columns > self.limits.tokens:
            raise ConfigError(
                f"There is room for {self.limits.tokens} tokens; got n={request.n} texts of {request.columns}, prompt "
                "included. Ask for fewer or for shorter ones."
            )
        if len(self.waiting) >= self.limits.waiting:
            raise BusyError(f"{self.limits.waiting} requests are waiting, and no more may. Ask again later.")
        self.waiting.append(ticket := Ticket(request))
        return ticket

    def cancel(self, ticket: Ticket, text: int | None = None) -> None:
        """No more of one of its texts is wanted, or of none of them; their rows leave before the next step."""
        ticket.ended.update(range(ticket.request.n) if text is None else [text])

    def step(self) -> list[Written]:
        """One token for each row that is in, those that came in now included; the errors of those that failed.

        A request that cannot be read fails alone. Where a step of all rows fails (memory ran out, say), all of them
        fail, those that came in included, and the next ones begin anew.
        """
        self._leave()
        entering = self._admitted()
        try:
            with torch.no_grad():
                written = self._advance(entering)
        except Exception as error:
            seated = {row.ticket for row in self.rows}
            self.rows += [row for ticket in entering if ticket not in seated for row in rows_of(ticket)]
            written = [failure(row, error) for row in self.rows]
            self.rows, self._slots = [], self.model.new_slots(self.limits.rows)
        for each in written:
            if each.end:
                each.ticket.ended.add(each.text)
        return written

    def _advance(self, entering: list[Ticket]) -> list[Written]:
        failed: list[Written] = []
        logits = [self._go_on()] if self.rows else []
        for group in self._groups(entering):
            logits += self._read(group, failed)
        return failed + (self._write(torch.cat(logits)) if logits else [])

    def _leave(self) -> None:
        gone = {place for place, row in enumerate(self.rows) if row.over}
        if gone:
            order = self._slots.leave(gone)
            self.rows = [self.rows[place] for place in order]

    def _go_on(self) -> Float[Tensor, "B V"]:
        """The logits behind the newest token of each row."""
        newest = torch.tensor([[row.written[-1]] for row in self.rows], device=self.device)
        return self.model.head(self.model.hidden(newest, cache=self._slots, **self._memory(newest))[:, -1])

    def _memory(self, newest: Tensor) -> dict[str, Tensor]:
        """What stands for the memories: their keys are projected already, so that only the shape is looked at."""
        if not (lengths := self._slots.crossing.lengths):
            return {}
        like = next(self.model.parameters())
        empty = like.new_zeros(1).expand(len(newest), max(lengths), self.model.reader.config.d_model)
        return {"memory": empty, "source_keep": self._slots.crossing.keep(self.device)}

    def _admitted(self) -> list[Ticket]:
        """Who comes in now: the first of those that wait, as long as there is room. Nobody is overtaken."""
        rows = len(self.rows)
        columns = max((row.ticket.request.columns for row in self.rows), default=0)
        admitted: list[Ticket] = []
        while self.waiting:
            request = self.waiting[0].request
            columns = max(columns, request.columns)
            if not self.waiting[0].over:
                rows += request.n
                if rows > self.limits.rows or rows * columns > self.limits.tokens:
                    break
                admitted.append(self.waiting[0])
            self.waiting.popleft()
        return admitted

    def _groups(self, tickets: list[Ticket]) -> list[list[Ticket]]:
        """Tickets whose prompts are read together, padding included no more than the limit."""
        groups: list[list[Ticket]] = []
        for ticket in tickets:
            longest = max(len(each.request.prompt) for each in [*(groups[-1] if groups else []), ticket])
            if groups and (len(groups[-1]) + 1) * longest <= self.limits.reading:
                groups[-1].append(ticket)
            else:
                groups.append([ticket])
        return groups

    def _read(self, group: list[Ticket], failed: list[Written]) -> list[Float[Tensor, "B V"]]:
        """The logits behind each prompt, once for each text, which then has a slot with what was read of its prompt."""
        requests = [ticket.request for ticket in group]
        try:
            cache, logits = self._read_prompts(requests)
        except Exception as error:
            if len(group) > 1:
                return [each for ticket in group for each in self._read([ticket], failed)]
            failed += [failure(row, error) for row in rows_of(group[0])]
            return []
        self.rows += [row for ticket in group for row in rows_of(ticket)]
        rows = [place for place, request in enumerate(requests) for _ in range(request.n)]
        self._slots.take(
            cache,
            rows,
            [len(requests[row].prompt) for row in rows],
            max(row.ticket.request.columns for row in self.rows),
            [len(source) + 1 for row in rows if (source := requests[row].source) is not None],
        )
        return [logits[torch.tensor(rows, device=self.device)]]

    def _read_prompts(self, requests: Sequence[Request]) -> tuple[Cache, Float[Tensor, "B V"]]:
        """The prompts, padded on the right, in one forward: what was read of them, and the logits behind each."""
        tokens, keep = pad([request.prompt for request in requests])
        lengths = torch.tensor([len(request.prompt) for request in requests], device=self.device)
        cache = self.model.new_cache()
        hidden = self.model.hidden(
            tokens.to(self.device),
            keep=None if keep is None else keep.to(self.device),
            prefix=lengths if self.prefix else None,
            cache=cache,
            **self._encoded(requests),
        )
        return cache, self.model.head(hidden[torch.arange(len(requests), device=self.device), lengths - 1])

    def _encoded(self, requests: Sequence[Request]) -> dict[str, Tensor | None]:
        """The memories of the sources, where the model reads any."""
        sources = [[*request.source, EOS] for request in requests if request.source is not None]
        if not sources:
            return {}
        source, keep = pad(sources)
        keep = None if keep is None else keep.to(self.device)
        return {"memory": self.model.encode(source.to(self.device), keep), "source_keep": keep}

    def _write(self, logits: Float[Tensor, "B V"]) -> list[Written]:
        """The next token of each row, chosen for all rows of one `choose` together."""
        places: dict[Choose, list[int]] = {}
        for place, row in enumerate(self.rows):
            places.setdefault(row.ticket.request.choose, []).append(place)
        told: dict[int, Written] = {}
        for choose, which in places.items():
            among = logits if len(which) == len(self.rows) else logits[torch.tensor(which, device=self.device)]
            told |= zip(which, self._chosen(choose, among, [self.rows[place] for place in which]), strict=True)
        return with_likely([told[place] for place in range(len(self.rows))], logits)

    def _chosen(self, choose: Choose, logits: Float[Tensor, "B V"], rows: list[Row]) -> list[Written]:
        """What `choose` says of these rows; where it refuses one of them, the others are asked for without it."""
        requests = [row.ticket.request for row in rows]
        context = Context(
            [request.first + row.text for request, row in zip(requests, rows, strict=True)],
            [request.prompt for request in requests],
            [row.written for row in rows],
            [request.seed for request in requests],
        )
        try:
            ids: list[int] = choose(logits, context).tolist()
        except Exception as error:
            if len(rows) == 1:
                return [failure(rows[0], error)]
            return [each for i, row in enumerate(rows) for each in self._chosen(choose, logits[i : i + 1], [row])]
        written: list[Written] = []
        for row, id, request in zip(rows, ids, requests, strict=True):
            row.written.append(id)
            limited = LIMITED if len(row.written) >= request.max_new_tokens else ""
            written.append(Written(row.ticket, row.text, id, ENDED if id == self.eos else limited))
        return written


def rows_of(ticket: Ticket) -> list[Row]:
    """A row for each text of a request."""
    return [Row(ticket, text) for text in range(ticket.request.n)]


def failure(row: Row, error: Exception) -> Written:
    """What is told of a row that an error ended."""
    return Written(row.ticket, row.text, -1, FAILED, error=error)
