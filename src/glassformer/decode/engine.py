"""Continuous batching: finished rows leave the batch and waiting requests enter, while other rows continue.

As in Orca (Yu et al. 2022, section 3.1, iteration-level scheduling), each step decides anew which rows are in the
batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import torch

from glassformer.base.errors import BusyError, ConfigError, DataError
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.data.batch import pad
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.filters import Choose, Context
from glassformer.decode.requests import FAILED, Likely, Limits, Request, Ticket, Written, check_request, places_of
from glassformer.decode.rows import begin_of, check_context, check_writes
from glassformer.decode.stream import ENDED, LIMITED
from glassformer.nn.cache import Cache
from glassformer.nn.observe import Evaluation
from glassformer.nn.transformer import Transformer

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
    """The reply for a text that an error ended. One that is no `Exception` becomes the cause of a `RuntimeError`."""
    if not isinstance(error, Exception):
        caused = RuntimeError(f"{type(error).__name__}: {error}")
        caused.__cause__ = error
        error = caused
    return Written(ticket, text, -1, FAILED, error=error)


def ended(written: list[Written]) -> list[Written]:
    """Note on the tickets which texts end with these replies; return the replies."""
    for each in written:
        if each.end:
            each.ticket.ended.add(each.text)
    return written


def with_likely(written: list[Written], logits: Float[Tensor, "B V"]) -> list[Written]:
    """Add log-probabilities to the replies whose requests ask for them; row i of the logits belongs to reply i."""
    requested = {i: each.ticket.request.logprobs for i, each in enumerate(written) if each.error is None}
    counts = {i: k for i, k in requested.items() if k is not None}
    if not counts:
        return written
    among, ids = logits[torch.tensor([*counts], device=logits.device)], [written[i].id for i in counts]
    replies = list(written)
    for i, each in zip(counts, likely(among, ids, [*counts.values()]), strict=True):
        replies[i] = replies[i]._replace(likely=each)
    return replies


def likely(logits: Float[Tensor, "rows V"], ids: Sequence[int], counts: Sequence[int]) -> list[Likely]:
    """The log-probability of one id in each row, and as many of the likeliest as `counts` says."""
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    top = log_p.topk(min(max(counts, default=0), log_p.shape[-1]))
    rows = zip(log_p, ids, top.values.tolist(), top.indices.tolist(), counts, strict=True)
    return [Likely(float(row[id]), list(zip(best[:k], values[:k], strict=True))) for row, id, values, best, k in rows]


class Load(NamedTuple):
    """The size of texts written together: each takes as much room as the longest text plus the longest memory."""

    rows: int = 0
    columns: int = 0
    memory: int = 0

    def plus(self, rows: int, columns: int, memory: int) -> Load:
        """The load with this many more texts."""
        return Load(self.rows + rows, max(self.columns, columns), max(self.memory, memory))

    @property
    def tokens(self) -> int:
        """The cache size for their keys and values, in tokens per layer."""
        return self.rows * (self.columns + self.memory)

    def fits(self, limits: Limits) -> bool:
        """Whether all of them are within the limits."""
        return self.rows <= limits.rows and self.tokens <= limits.tokens


class Waiting:
    """A queue of tickets in order of arrival. One thread takes them out; another may put them in.

    Cancelled tickets do not count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tickets: deque[Ticket] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.tickets)

    def put(self, request: Request) -> Ticket:
        """Add a request at the end. Errors: `BusyError` if the queue is full."""
        with self._lock:
            self._forget()
            if len(self.tickets) >= self.most:
                raise BusyError(f"The queue is full: {self.most} requests are waiting. Try again later.")
            self.tickets.append(ticket := Ticket(request))
            return ticket

    def take(self, fits: Callable[[Request], bool]) -> list[Ticket]:
        """Take tickets from the front, up to the first that does not fit, so that none is overtaken."""
        taken: list[Ticket] = []
        with self._lock:
            self._forget()
            while self.tickets and fits(self.tickets[0].request):
                taken.append(self.tickets.popleft())
        return taken

    def _forget(self) -> None:
        if any(each.over for each in self.tickets):
            self.tickets = deque(each for each in self.tickets if not each.over)


ENDS = (KeyboardInterrupt, SystemExit)
"""What ends a program, and no text. Whatever else is raised ends texts: a library in Rust that panics raises a
BaseException, too."""


class Engine:
    """Writes the texts of many requests together, one token per row and step.

    Each row gets what it would get alone, up to rounding (docs/decoding.md, Faster).

    One thread calls `step`; one other thread may call `submit` and `cancel`. `eos`, `prefix`, `max_context` and `drop`
    are as in `generate`.
    """

    def __init__(
        self,
        model: Transformer,
        limits: Limits | None = None,
        *,
        eos: int = EOS,
        prefix: bool = False,
        max_context: int | None = None,
        drop: int = 1,
    ) -> None:
        check_writes(model)
        check_context(model, max_context, drop)
        self.model, self.limits, self.eos, self.prefix = model, limits or Limits(), eos, prefix
        self.max_context, self.drop, self._evaluation = max_context, drop, Evaluation(model)
        self.device = next(model.parameters()).device
        self.waiting = Waiting(self.limits.waiting)
        self.rows: list[Row] = []
        self._in_hand: list[Ticket] = []
        """Tickets that left the queue, in order, until all of their texts have ended."""
        self._slots = model.new_slots(self.limits.rows)

    @property
    def busy(self) -> bool:
        """Whether there is work for a step."""
        return len(self.waiting) > 0 or len(self.rows) > 0

    def submit(self, request: Request) -> Ticket:
        """Queue a request; its first tokens come with the first step that has room for all its texts.

        Errors: `ConfigError` and `DataError` for an invalid request, `BusyError` if the queue is full.
        """
        check_request(self.model, request, self._columns(request))
        if request.scored and (self.prefix or self._first(request)):
            came = "a prefix model, which reads it both ways" if self.prefix else "one that is longer than the context"
            raise ConfigError(f"The tokens of a prompt are scored from left to right; got {came}. Remove scored.")
        load = self._with(Load(), request, request.n)
        if load.rows > self.limits.rows:
            raise ConfigError(
                f"At most {self.limits.rows} texts are written together; got n={request.n}. Ask for fewer."
            )
        if load.tokens > self.limits.tokens:
            raise ConfigError(
                f"The KV cache has room for {self.limits.tokens} tokens; got n={request.n} texts of "
                f"{load.columns + load.memory} each, prompt or source included. Ask for fewer or shorter texts."
            )
        return self.waiting.put(request)

    def cancel(self, ticket: Ticket, text: int | None = None) -> None:
        """Cancel one text of a request, or all of them; their rows leave before the next step."""
        ticket.ended.update(range(ticket.request.n) if text is None else [text])

    def step(self) -> list[Written]:
        """Admit waiting requests and write one token for each row; return the tokens, and the errors of failed rows.

        A request that cannot be read fails alone. If a step fails as a whole (for instance, memory runs out), all texts
        fail, as with `fail`, including those just admitted. Errors: only `KeyboardInterrupt` and `SystemExit`, after
        which the caller ends the texts with `fail`, or the engine is of no more use.
        """
        try:
            passages = self._leave()
            active = [*self.rows, *(row for each in passages for row in each.rows)]
            self._in_hand = [each for each in self._in_hand if not each.over]
            admitted = self._admitted(active)
            self._in_hand += admitted
            passages += [Passage.of(ticket, self._first(ticket.request)) for ticket in admitted]
            with torch.no_grad(), self._evaluation:
                written = self._advance(passages)
        except ENDS:
            raise
        except BaseException as error:
            return self.fail(error)
        return ended(written)

    def fail(self, error: BaseException) -> list[Written]:
        """End all texts that are being written, and start anew with an empty cache; requests that wait, wait on."""
        lost = [(ticket, text) for ticket in self._in_hand for text in range(ticket.request.n)]
        written = [failure(ticket, text, error) for ticket, text in lost if text not in ticket.ended]
        self.rows, self._in_hand = [], []
        self._slots = self.model.new_slots(self.limits.rows)
        return ended(written)

    def _advance(self, passages: list[Passage]) -> list[Written]:
        failed: list[Written] = []
        logits = [self._go_on()] if self.rows else []
        for group in self._groups(passages):
            logits += self._read(group, failed)
        return failed + (self._write(torch.cat(logits)) if logits else [])

    def _leave(self) -> list[Passage]:
        """Remove rows that ended and rows whose context is full; return the latter, to be read anew from further on."""
        rolling = [row for row in self.rows if not row.over and row.begin != self._begin(row)]
        gone = {place for place, row in enumerate(self.rows) if row.over or row in rolling}
        if gone:
            order = self._slots.leave(gone)
            self.rows = [self.rows[place] for place in order]
        return [Passage.again(row, self._begin(row)) for row in rolling]

    def _begin(self, row: Row) -> int:
        return begin_of(len(row.ticket.request.prompt) + len(row.written), self.max_context, self.drop)

    def _first(self, request: Request) -> int:
        return begin_of(len(request.prompt), self.max_context, self.drop)

    def _columns(self, request: Request) -> int:
        """The most tokens that a row of the request has in the cache; the last one written is never read."""
        columns = len(request.prompt) + request.max_new_tokens - 1
        return columns if self.max_context is None else min(columns, self.max_context)

    def _go_on(self) -> Float[Tensor, "B V"]:
        """Read the newest token of each row; return the logits after it."""
        newest = torch.tensor([[row.written[-1]] for row in self.rows], device=self.device)
        return self.model.head(self.model.hidden(newest, cache=self._slots, **self._memory(newest))[:, -1])

    def _memory(self, newest: Tensor) -> dict[str, Tensor]:
        """A placeholder for the memories: their keys are already projected, so only the shape is used."""
        if not (lengths := self._slots.crossing.lengths):
            return {}
        like = next(self.model.parameters())
        empty = like.new_zeros(1).expand(len(newest), max(lengths), self.model.reader.config.d_model)
        return {"memory": empty, "source_keep": self._slots.crossing.keep(self.device)}

    def _with(self, load: Load, request: Request, rows: int) -> Load:
        """A load with this many more rows of a request."""
        return load.plus(rows, self._columns(request), places_of(request.source))

    def _admitted(self, active: Sequence[Row]) -> list[Ticket]:
        """Take requests from the front of the queue, as long as there is room beside the rows that continue."""
        load = Load()
        for row in active:
            load = self._with(load, row.ticket.request, 1)

        def fits(request: Request) -> bool:
            nonlocal load
            more = self._with(load, request, request.n)
            load = more if (fits := more.fits(self.limits)) else load
            return fits

        return self.waiting.take(fits)

    def _groups(self, passages: list[Passage]) -> list[list[Passage]]:
        """Group passages to be read together, with at most `limits.reading` tokens per group, padding included."""
        groups: list[list[Passage]] = []
        for passage in passages:
            longest = max(each.reads for each in [*(groups[-1] if groups else []), passage])
            if groups and (len(groups[-1]) + 1) * longest <= self.limits.reading:
                groups[-1].append(passage)
            else:
                groups.append([passage])
        return groups

    def _read(self, group: list[Passage], failed: list[Written]) -> list[Float[Tensor, "B V"]]:
        """Read passages and give their rows slots in the cache; return the logits after each, once per row."""
        try:
            cache, logits = self._read_together(group)
        except ENDS:
            raise
        except BaseException as error:
            if len(group) > 1:
                return [each for passage in group for each in self._read([passage], failed)]
            failed += [failure(row.ticket, row.text, error) for row in group[0].rows]
            return []
        self.rows += [row for passage in group for row in passage.rows]
        places = [place for place, passage in enumerate(group) for _ in passage.rows]
        self._slots.take(
            cache,
            places,
            [len(group[place].ids) for place in places],
            max(self._columns(row.ticket.request) for row in self.rows),
            [memory for place in places if (memory := places_of(group[place].source))],
        )
        return [logits[torch.tensor(places, device=self.device)]]

    def _read_together(self, group: list[Passage]) -> tuple[Cache, Float[Tensor, "B V"]]:
        """Read passages, padded on the right, in one forward pass; return the cache and the logits after each."""
        tokens, keep = pad([passage.ids for passage in group], self.device)
        lengths = torch.tensor([len(passage.ids) for passage in group], device=self.device)
        cache = self.model.new_cache(whole=True)
        hidden = self.model.hidden(
            tokens,
            keep=keep,
            prefix=torch.tensor([each.both_ways for each in group], device=self.device) if self.prefix else None,
            cache=cache,
            **self._encoded(group),
        )
        for place, passage in enumerate(group):
            if passage.scored is not None:
                scored: list[Likely] = []
                for start in range(0, len(passage.ids) - 1, SCORED):
                    after = passage.ids[start + 1 : start + SCORED + 1]
                    scored += likely(
                        self.model.head(hidden[place, start : start + len(after)]), after, [passage.scored] * len(after)
                    )
                for row in passage.rows:
                    row.prompt = scored
        return cache, self.model.head(hidden[torch.arange(len(group), device=self.device), lengths - 1])

    def _encoded(self, group: list[Passage]) -> dict[str, Tensor | None]:
        """Encode the sources of the passages, if they have any."""
        sources = [[*passage.source, EOS] for passage in group if passage.source is not None]
        if not sources:
            return {}
        source, keep = pad(sources, self.device)
        return {"memory": self.model.encode(source, keep), "source_keep": keep}

    def _write(self, logits: Float[Tensor, "B V"]) -> list[Written]:
        """Choose the next token of each row, for all rows with the same `choose` together."""
        places: dict[Choose, list[int]] = {}
        for place, row in enumerate(self.rows):
            places.setdefault(row.ticket.request.choose, []).append(place)
        replies: dict[int, Written] = {}
        for choose, which in places.items():
            among = logits if len(which) == len(self.rows) else logits[torch.tensor(which, device=self.device)]
            replies |= zip(which, self._chosen(choose, among, [self.rows[place] for place in which]), strict=True)
        return with_likely([replies[place] for place in range(len(self.rows))], logits)

    def _chosen(self, choose: Choose, logits: Float[Tensor, "B V"], rows: list[Row]) -> list[Written]:
        """Call `choose` for these rows; if it raises an error, call it row by row, so that only the bad ones fail."""
        requests = [row.ticket.request for row in rows]
        context = Context(
            [request.first + row.text for request, row in zip(requests, rows, strict=True)],
            [request.prompt for request in requests],
            [row.written for row in rows],
            [request.seed for request in requests],
        )
        try:
            ids = chosen(choose, logits, context)
        except ENDS:
            raise
        except BaseException as error:
            if len(rows) == 1:
                return [failure(rows[0].ticket, rows[0].text, error)]
            return [each for i, row in enumerate(rows) for each in self._chosen(choose, logits[i : i + 1], [row])]
        written: list[Written] = []
        for row, id, request in zip(rows, ids, requests, strict=True):
            row.written.append(id)
            limited = LIMITED if len(row.written) >= request.max_new_tokens else ""
            end, prompt = ENDED if id == self.eos else limited, row.prompt
            written.append(Written(row.ticket, row.text, id, end, prompt=prompt))
            row.prompt = None
        return written


READ, WRITTEN = (5, 2, 3), 2
"""Tokens read by each of the texts written together, all different; and tokens written, the last one by a step."""


def warm_up(engine: Engine) -> None:
    """Write one short text and then several together, because each of these two cases is compiled separately.

    Call it while nothing else calls `step`. Texts are fewer and shorter if the engine has little room. Errors: whatever
    a step fails with.
    """
    least = 2 if answers(engine) else 1  # tokens of the shortest text: itself, and the end of its source
    limits = engine.limits
    several = min(len(READ), limits.rows, limits.waiting, limits.tokens // least)
    for n in sorted({min(1, several), several}):
        for read in READ[:n]:
            engine.submit(request_of(engine, read, limits.tokens // n))
        while engine.busy:
            for each in engine.step():
                if each.error is not None:
                    raise each.error


def request_of(engine: Engine, read: int, room: int) -> Request:
    """Make a request that reads `read` tokens, or as many as there is room for."""
    config, end = engine.model.config, int(answers(engine))
    most = min(each for each in (room - end, engine.max_context, config.stack.max_len) if each is not None)
    written = min(WRITTEN, most)
    if config.encoder is None or not end:
        return Request([BOS] * min(read, most - written + 1), max_new_tokens=written, choose=again)
    longest = min(room - written, config.encoder.max_len or room)
    return Request(source=[BOS] * min(read, longest - end), max_new_tokens=written, choose=again)


def answers(engine: Engine) -> bool:
    """Whether the engine's model is an encoder-decoder, so that a text answers a source."""
    return engine.model.config.encoder is not None and engine.model.config.decoder is not None


def again(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """Choose <bos> for every row, so that none ends early."""
    return torch.full((len(logits),), BOS, device=logits.device)
