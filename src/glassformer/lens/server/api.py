"""The explorer's endpoints: the page, the run, its traces, and the model's answers to new texts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.base.errors import GlassformerError
from glassformer.lens.page.bundle import served, static
from glassformer.lens.server.requests import (
    MOST_BODY,
    Asker,
    Line,
    Poll,
    ablate_request,
    body_of,
    error,
    patch_request,
    streamed,
    trace_request,
)
from glassformer.lens.server.subject import Subject
from glassformer.lens.server.traces import UNKNOWN, Traces, answered, repeated, title
from glassformer.lens.trace.file import piece
from glassformer.lens.trace.value import patch_traces, patching_as_json


class Api:
    """The endpoints of one subject. The model answers one request at a time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.one = CapacityLimiter(1)
        """A request that waits for its turn occupies no thread."""
        self.ended = threading.Event()
        self.traces = Traces(subject)

    def end(self) -> None:
        """Answer nothing more; work that is under way ends at its next step."""
        self.ended.set()

    async def page(self, request: Request) -> Response:
        """GET /, the page itself."""
        return Response(served(), media_type="text/html; charset=utf-8")

    async def static(self, request: Request) -> Response:
        """GET /static/NAME: the page's script or style; the name is looked up in a table, never opened as a path."""
        name: str = request.path_params["name"]
        if name not in static():
            return error(404, "There is no such part of the page.")
        content, kind = static()[name]
        return Response(content, media_type=kind)

    async def run(self, request: Request) -> Response:
        """GET /api/run: the facts and metrics of the run."""
        return JSONResponse(self.subject.facts() | {"metrics": await run_in_threadpool(self.subject.lines)})

    async def metrics(self, request: Request) -> Response:
        """GET /api/metrics?since=N: the run's metrics from line N on, and its current checkpoints."""
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal() and len(since) < 10):
            return error(400, "since must be a whole number: how many lines you already have.")
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
            return error(400, "This page shows a model without a run folder, so it has no checkpoints.")
        try:
            return JSONResponse(await run_in_threadpool(self.subject.history))
        except GlassformerError as mistake:
            return error(400, str(mistake))

    async def list_traces(self, request: Request) -> Response:
        """GET /api/traces: id and title of each trace."""
        told = [{"id": name, "title": title(each.trace)} for name, each in [*self.traces.known.items()]]
        return JSONResponse({"traces": told})

    async def trace(self, request: Request) -> Response:
        """GET /api/trace/ID: the trace as a file."""
        found = self.traces.known.get(request.path_params["id"])
        if found is None:
            return error(404, UNKNOWN)
        return Response(await run_in_threadpool(found.trace.to_bytes), media_type="application/octet-stream")

    async def header(self, request: Request) -> Response:
        """GET /api/trace/ID/header: the header alone."""
        found = self.traces.known.get(request.path_params["id"])
        if found is None:
            return error(404, UNKNOWN)
        return Response(found.header, media_type="application/json")

    async def buffer(self, request: Request) -> Response:
        """GET /api/trace/ID/buffer/NAME?layer=L: a buffer, or one layer of it, as stored."""
        found, name = self.traces.known.get(request.path_params["id"]), request.path_params["name"]
        if found is None:
            return error(404, UNKNOWN)
        if name not in found.trace.buffers:
            return error(404, "This trace has no such buffer.")
        asked = request.query_params.get("layer")
        layer = (
            None if asked is None else int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 6 else -1
        )
        if layer is not None and not 0 <= layer < len(found.trace.buffers[name][1]):
            return error(400, "layer must be the number of a layer, counted from 0.")
        return Response(piece(found.trace.buffers, name, layer), media_type="application/octet-stream")

    async def make(self, request: Request) -> Response:
        """POST /api/trace {text, ids or trace; gold, begin, decode}: let the model answer; returns the trace's {id}."""

        def work(data: bytes, poll: Poll) -> dict[str, Any]:
            return {"id": self.traces.answer(trace_request(data), poll=poll)}

        return await self.attempt(request, work)

    async def generate(self, request: Request) -> Response:
        """POST /api/generate, as /api/trace: streams a line {token} for each token as it is written, then {id}."""
        data = await body_of(request)
        if data is None:
            return error(413, f"A request may have {MOST_BODY:,} bytes.")
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
            asked = ablate_request(data)
            known = self.traces.known.get(asked.trace)
            if known is None:
                raise GlassformerError(UNKNOWN)
            fewer = known.asked.without_too(asked.heads, asked.kind)
            figure = self.traces.score(known.asked, poll=poll)
            after, figure_after = self.traces.run(fewer, poll=poll), self.traces.score(fewer, poll=poll)
            same = self.traces.run(fewer, repeated(known), poll=poll)
            told: dict[str, Any] = {"before": answered(known.trace), "after": answered(after)}
            told["same"] = self.traces.keep(same, fewer)
            if figure and figure_after:
                name, value, n = figure
                told["metrics"] = {"name": name, "before": value, "after": figure_after[1], "n": n}
            return told

        return await self.attempt(request, work)

    async def patch(self, request: Request) -> Response:
        """POST /api/patch {trace, other}: which activations of `trace` bring its answer back on the other's text."""

        def work(data: bytes, poll: Poll) -> dict[str, Any]:
            asked = patch_request(data)
            one, other = self.traces.known.get(asked.trace), self.traces.known.get(asked.other)
            if one is None or other is None:
                raise GlassformerError(UNKNOWN)
            if one.asked.without or other.asked.without:
                raise GlassformerError(
                    "Patching needs two inputs that were run with all heads; one of these was run without some. "
                    "Choose another."
                )
            return patching_as_json(patch_traces(self.subject.model, one.trace, other.trace, poll=poll))

        return await self.attempt(request, work)

    async def attempt(self, request: Request, work: Callable[[bytes, Poll], dict[str, Any]]) -> Response:
        """Return the result of `work` on the request's body, or an error response with the reason."""
        data = await body_of(request)
        if data is None:
            return error(413, f"A request may have {MOST_BODY:,} bytes.")

        asker = Asker(self.ended)

        def alone() -> dict[str, Any]:
            asker.poll()
            return work(data, asker.poll)

        try:
            return JSONResponse(await asker.stays(request, run_sync(alone, limiter=self.one)))
        except GlassformerError as mistake:
            return error(400, str(mistake))
