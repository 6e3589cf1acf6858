"""The explorer's ASGI application: its traces, its endpoints, and a server for it on loopback."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, NamedTuple

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server

from glassformer.base.errors import ConfigError, GlassformerError
from glassformer.decode.answer import nothing
from glassformer.lens.ablate import Head, head_id
from glassformer.lens.page.bundle import served, static
from glassformer.lens.server.requests import (
    Asker,
    Line,
    Poll,
    Refused,
    TraceRequest,
    ablate_request,
    body_of,
    error,
    guarded,
    patch_request,
    streamed,
    trace_request,
)
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.file import header_text, piece
from glassformer.lens.trace.make import Trace, patch_traces, patching_as_json
from glassformer.lens.trace.reading import USUAL_MANNER, Manner, Text

# The traces in memory: those of the run's examples, and the latest ones that were requested.

MOST_TRACES = 32
"""The most traces in memory; beyond it, the oldest requested one is dropped."""
UNKNOWN = f"There is no such trace: only the run's own and the latest are kept, {MOST_TRACES} in all. Ask for it again."


class Question(NamedTuple):
    """What the model was asked to answer, and how."""

    source: Text
    gold: Text | None = None
    manner: Manner = USUAL_MANNER
    without: tuple[Head, ...] = ()
    """Heads that are ablated."""
    kind: str = "zero"
    """What they output instead: nothing ("zero") or their mean ("mean")."""

    def without_too(self, heads: Sequence[Head], kind: str) -> Question:
        """Return a copy with these heads ablated too. Errors: `GlassformerError` if the kinds differ."""
        if self.without and kind != self.kind:
            raise GlassformerError(
                f"Heads are replaced in one way only, and in this trace it is {self.kind!r}; got {kind!r}. Choose "
                f"{self.kind!r}, or a trace with all heads."
            )
        return self._replace(without=tuple(dict.fromkeys([*self.without, *heads])), kind=kind)

    @property
    def note(self) -> str:
        """A note that tells it from other answers to the same text, except for its forced prefix."""
        names = [head_id(*each) for each in self.without]
        how = "without" if self.kind == "zero" else "with the mean of"
        notes = [f"{how} {', '.join(names) if len(names) < 4 else f'{len(names)} heads'}"] if names else []
        return ", ".join([*notes, f"beam {self.manner.search.beam}"] if self.manner.search.beam > 1 else notes)


class Kept(NamedTuple):
    """A trace in memory, its header as sent, and what was asked."""

    trace: Trace
    header: bytes
    question: Question


class Traces:
    """The traces of one server, by ids that count up."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.known: dict[str, Kept] = {}
        self.made = 0
        self.own = len(subject.examples)
        for example in subject.examples:
            question = Question(*example)
            self.keep(self.run(question), question)

    def keep(self, made: Trace, question: Question) -> str:
        """Store a trace and return its id."""
        name = str(self.made)
        self.made += 1
        notes = [note for note in (question.note, made.header["run"].get("note")) if note]
        if question.manner.begin:
            (last,) = self.subject.tokenizers.target.tokens(question.manner.begin[-1:])
            notes.append(f"with {last} as token {len(question.manner.begin)}")
        made.header["run"] |= {"id": name} | ({"note": ", ".join(notes)} if notes else {})
        self.known[name] = Kept(made, header_text(made.header, made.buffers), question)
        while len(self.known) > max(MOST_TRACES, self.own):
            del self.known[list(self.known)[self.own]]
        return name

    def named(self, name: str) -> Kept:
        """Return a trace by its id. Errors: `Refused`."""
        if name not in self.known:
            raise Refused(404, UNKNOWN)
        return self.known[name]

    def run(self, question: Question, manner: Manner | None = None, *, poll: Poll = nothing) -> Trace:
        """Trace the model's answer without the ablated heads; `manner` replaces the one in `question`."""
        manner = (manner or question.manner)._replace(poll=poll)
        with self.fewer(question):
            return self.subject.trace(question.source, question.gold, manner)

    def score(self, question: Question, *, poll: Poll = nothing) -> tuple[str, float, int] | None:
        """Measure the subject's score without the ablated heads; None if it has no score."""
        with self.fewer(question):
            return None if self.subject.score is None else self.subject.score(poll)

    def fewer(self, question: Question) -> AbstractContextManager[None]:
        """Ablate the heads for the length of a `with`. Errors: `GlassformerError` if the subject does not allow it."""
        if not question.without:
            return nullcontext()
        if self.subject.silence is None:
            raise GlassformerError("Heads cannot be removed on this page. Open the run with glassformer explore RUN.")
        return self.subject.silence(self.subject.model, question.without, question.kind)

    def answer(self, given: TraceRequest, heard: Callable[[int], None] | None = None, *, poll: Poll = nothing) -> str:
        """Make the trace that a request asks for and return its id. Errors: `GlassformerError` for an unknown trace."""
        question = Question(given.source, given.gold) if given.trace is None else self.named(given.trace).question
        question = question._replace(manner=(given.manner or question.manner)._replace(begin=given.begin))
        return self.keep(self.run(question, question.manner._replace(heard=heard), poll=poll), question)


def repeated(known: Kept) -> Manner:
    """Return the manner that forces the model to write the same tokens again, one by one."""
    target = known.trace.header["sequences"].get("target")
    if target is None:
        return known.question.manner
    written = target["ids"][target["n_prompt"] :]
    return Manner(max_new_tokens=len(written), begin=written)


def answered(trace: Trace) -> list[str]:
    """Return the model's own answer: its label, the tokens it wrote or, for a given target, its most likely tokens."""
    header = trace.header
    if header["run"]["mode"] == "number":
        return [f"{name}: {number:.6g}" for name, number in header["labels"]]
    if "labels" in header:
        return [header["labels"][0][0]]
    if header["run"]["mode"] == "forced":
        return [header["vocab"][str(step["top"][0][0])] for step in header["steps"]]
    return trace.output


def title(trace: Trace) -> str:
    """Return a title: the first words that the model read, and the note."""
    sequences = trace.header["sequences"]
    side = sequences.get("source") or sequences["target"]
    words = [text for text, special in zip(side["text"], side["special"], strict=True) if not special][:24]
    text = ("" if all(len(word) <= 1 for word in words) else " ").join(words)[:60] or "(empty)"
    note = trace.header["run"].get("note")
    return f"{text} · {note}" if note else text


# The explorer's endpoints: the page, the run, its traces, and the model's answers to new texts.


class Api:
    """The endpoints of one subject. The model answers one request at a time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.one = CapacityLimiter(1)
        """A request that waits for its turn occupies no thread."""
        self.ended = threading.Event()
        """Once set, nothing more is answered; work that is under way ends at its next step."""
        self.traces = Traces(subject)

    async def page(self, request: Request) -> Response:
        """GET /, the page itself."""
        return Response(served(), media_type="text/html; charset=utf-8")

    async def static(self, request: Request) -> Response:
        """GET /static/NAME: the page's script or style; the name is looked up in a table, never opened as a path."""
        name: str = request.path_params["name"]
        if name not in static():
            raise Refused(404, "There is no such part of the page.")
        content, kind = static()[name]
        return Response(content, media_type=kind)

    async def run(self, request: Request) -> Response:
        """GET /api/run: the facts and metrics of the run."""
        return JSONResponse(self.subject.facts() | {"metrics": await run_in_threadpool(self.subject.lines)})

    async def metrics(self, request: Request) -> Response:
        """GET /api/metrics?since=N: the run's metrics from line N on, and its current checkpoints."""
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal() and len(since) < 10):
            raise Refused(400, "since must be a whole number: how many lines you already have.")
        lines = await run_in_threadpool(self.subject.lines, int(since))
        return JSONResponse({"lines": lines, "next": int(since) + len(lines), "kept": list(self.subject.kept())})

    async def samples(self, request: Request) -> Response:
        """GET /api/samples: what the model wrote at the run's evaluations."""
        return JSONResponse({"samples": await run_in_threadpool(self.subject.samples)})

    async def others(self, request: Request) -> Response:
        """GET /api/others: name and metrics of the runs beside this one."""
        return JSONResponse({"runs": await run_in_threadpool(self.subject.beside)})

    async def history(self, request: Request) -> Response:
        """GET /api/history: the role of each head over the checkpoints of the run."""
        if self.subject.history is None:
            raise Refused(400, "This page shows a model without a run folder, so it has no checkpoints.")
        return JSONResponse(await run_in_threadpool(self.subject.history))

    async def list_traces(self, request: Request) -> Response:
        """GET /api/traces: id and title of each trace."""
        traces = [{"id": name, "title": title(each.trace)} for name, each in [*self.traces.known.items()]]
        return JSONResponse({"traces": traces})

    async def trace(self, request: Request) -> Response:
        """GET /api/trace/ID: the trace as a file."""
        found = self.traces.named(request.path_params["id"])
        return Response(await run_in_threadpool(found.trace.to_bytes), media_type="application/octet-stream")

    async def header(self, request: Request) -> Response:
        """GET /api/trace/ID/header: the header alone."""
        found = self.traces.named(request.path_params["id"])
        return Response(found.header, media_type="application/json")

    async def buffer(self, request: Request) -> Response:
        """GET /api/trace/ID/buffer/NAME?layer=L: a buffer, or one layer of it, as stored."""
        found, name = self.traces.named(request.path_params["id"]), request.path_params["name"]
        if name not in found.trace.buffers:
            raise Refused(404, "This trace has no such buffer.")
        text = request.query_params.get("layer")
        layer = None if text is None else int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else -1
        if layer is not None and not 0 <= layer < len(found.trace.buffers[name][1]):
            raise Refused(400, "layer must be the number of a layer, counted from 0.")
        return Response(piece(found.trace.buffers, name, layer), media_type="application/octet-stream")

    async def make(self, request: Request) -> Response:
        """POST /api/trace {text, ids or trace; gold, begin, decode}: let the model answer; returns the trace's {id}."""

        def work(data: bytes, poll: Poll) -> dict[str, Any]:
            return {"id": self.traces.answer(trace_request(data), poll=poll)}

        return await self.attempt(request, work)

    async def generate(self, request: Request) -> Response:
        """POST /api/generate, as /api/trace: streams a line {token} for each token as it is written, then {id}."""
        data = await body_of(request)
        texts = self.subject.tokenizers.target.tokens

        def work(tell: Callable[[Line], None], poll: Poll) -> Line:
            def heard(id: int) -> None:
                tell({"token": texts([id])[0]})

            poll()
            return {"id": self.traces.answer(trace_request(data), heard, poll=poll)}

        return await streamed(request, work, self.ended, self.one)

    async def ablate(self, request: Request) -> Response:
        """POST /api/ablate {trace, heads, kind}: the model's answer and score with these heads and without them.

        `same` is the id of a trace in which the model, without them, is forced to write what it wrote with them, so
        that the attention of the other heads can be compared cell by cell. Heads that `trace` lacks stay ablated too.
        """

        def work(data: bytes, poll: Poll) -> dict[str, Any]:
            trace, heads, kind = ablate_request(data)
            known = self.traces.named(trace)
            fewer = known.question.without_too(heads, kind)
            figure = self.traces.score(known.question, poll=poll)
            after, figure_after = self.traces.run(fewer, poll=poll), self.traces.score(fewer, poll=poll)
            same = self.traces.run(fewer, repeated(known), poll=poll)
            answer: dict[str, Any] = {"before": answered(known.trace), "after": answered(after)}
            answer["same"] = self.traces.keep(same, fewer)
            if figure and figure_after:
                name, value, n = figure
                answer["metrics"] = {"name": name, "before": value, "after": figure_after[1], "n": n}
            return answer

        return await self.attempt(request, work)

    async def patch(self, request: Request) -> Response:
        """POST /api/patch {trace, other}: which activations of `trace` bring its answer back on the other's text."""

        def work(data: bytes, poll: Poll) -> dict[str, Any]:
            one, other = map(self.traces.named, patch_request(data))
            if one.question.without or other.question.without:
                raise GlassformerError(
                    "Patching needs two inputs that were run with all heads; one of these was run without some. "
                    "Choose another."
                )
            return patching_as_json(patch_traces(self.subject.model, one.trace, other.trace, poll=poll))

        return await self.attempt(request, work)

    async def attempt(self, request: Request, work: Callable[[bytes, Poll], dict[str, Any]]) -> Response:
        """Return the result of `work` on the request's body, or an error response with the reason."""
        data = await body_of(request)

        asker = Asker(self.ended)

        def alone() -> dict[str, Any]:
            asker.poll()
            return work(data, asker.poll)

        try:
            return JSONResponse(await asker.stays(request, run_sync(alone, limiter=self.one)))
        except GlassformerError as mistake:
            return error(400, str(mistake))


# The application, and a server for it.

HOST = "127.0.0.1"
HOST6 = "::1"
TRIES = 20
"""How many free ports to try until one is free at both addresses."""


def make_app(subject: Subject, token: str) -> Starlette:
    """Build the application, with every route behind the guard, and make the traces of the subject's examples.

    Nothing is compressed: on loopback, compressing takes longer than sending the bytes.
    """
    api = Api(subject)
    routes = [
        ("/", "GET", api.page),
        ("/static/{name}", "GET", api.static),
        ("/api/run", "GET", api.run),
        ("/api/metrics", "GET", api.metrics),
        ("/api/samples", "GET", api.samples),
        ("/api/others", "GET", api.others),
        ("/api/history", "GET", api.history),
        ("/api/traces", "GET", api.list_traces),
        ("/api/trace/{id}", "GET", api.trace),
        ("/api/trace/{id}/header", "GET", api.header),
        ("/api/trace/{id}/buffer/{name}", "GET", api.buffer),
        ("/api/trace", "POST", api.make),
        ("/api/generate", "POST", api.generate),
        ("/api/ablate", "POST", api.ablate),
        ("/api/patch", "POST", api.patch),
        ("/{rest:path}", "*", _nothing),
    ]

    def route(path: str, method: str, endpoint: Callable[..., object]) -> Route:
        methods = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] if method == "*" else [method]
        return Route(path, guarded(endpoint, token), methods=methods)  # pyright: ignore[reportArgumentType]

    app = Starlette(routes=[route(*each) for each in routes])
    app.state.api = api
    return app


async def _nothing(request: Request) -> Response:
    raise Refused(404, "There is nothing at this address.")


def new_token() -> str:
    """Return 128 random bits as URL-safe text."""
    return secrets.token_urlsafe(16)


def listen(port: int) -> list[socket.socket]:
    """Open loopback sockets at one port: at 127.0.0.1 and, if the machine has it, at ::1. Port 0 takes any free one.

    Errors: `ConfigError` if the port is taken at either address: requests to that one would reach another program.
    """
    tries = TRIES if port == 0 else 1
    while True:
        first = _listener(socket.AF_INET, HOST, port)
        if not _has_ipv6():
            return [first]
        try:
            return [first, _listener(socket.AF_INET6, HOST6, first.getsockname()[1])]
        except ConfigError:  # the port is free at the first address only
            first.close()
            tries -= 1
            if tries == 0:
                raise


def _listener(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only if the socket names its protocol; otherwise each answer may wait 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen()  # so that a browser that connects before the server runs waits and is not refused
    except OSError as reason:
        listener.close()
        raise ConfigError(
            f"The server cannot listen on port {port} of {host} ({reason.strerror}). Try --port 0 for any free port."
        ) from None
    return listener


def _has_ipv6() -> bool:
    """Whether this machine has ::1; a kernel may support IPv6 although its loopback has no such address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((HOST6, 0))
    except OSError:
        return False
    return True


class Ending(Server):
    """A server that calls `end` as soon as it begins to shut down, so that long work stops."""

    def __init__(self, config: Config, end: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.end = end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.end is not None:
            self.end()
        super().handle_exit(sig, frame)


def make_server(app: Starlette, end: Callable[[], None] | None = None) -> Server:
    """Make a server that logs only errors and stops at Ctrl-C, when it calls `end` at once."""
    return Ending(Config(app, log_level="error", lifespan="off", access_log=False, server_header=False), end)
