"""What the server answers: the page, the run, its traces, and what the model says to a new text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from glassformer.foundation.errors import GlassformerError
from glassformer.lens.page.bundle import served, static
from glassformer.lens.server.guard import MOST_BODY, body_of, error
from glassformer.lens.server.requests import ablate_request, patch_request, trace_request
from glassformer.lens.server.subject import Subject
from glassformer.lens.trace.container import header_text, piece
from glassformer.lens.trace.pair import patch_traces, patching_as_json
from glassformer.lens.trace.value import Trace

Done = TypeVar("Done")

MOST_TRACES = 32
"""Kept at once; the oldest of those that were asked for goes first."""


class Kept(NamedTuple):
    """A trace that is known, and its header as it is sent."""

    trace: Trace
    header: bytes


class Api:
    """The endpoints of one subject. The model answers one request at a time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.lock = threading.Lock()
        self.traces: dict[str, Kept] = {}
        self.made = 0
        for source, gold in subject.examples:
            self.keep(subject.trace(source, gold))
        self.own = len(self.traces)

    def keep(self, made: Trace) -> str:
        """The id under which a trace is known from now on."""
        name = str(self.made)
        self.made += 1
        made.header["run"]["id"] = name
        self.traces[name] = Kept(made, header_text(made.header, made.buffers))
        while len(self.traces) > MOST_TRACES:
            del self.traces[list(self.traces)[self.own]]
        return name

    async def page(self, request: Request) -> Response:
        """GET /, the page itself."""
        return Response(served(), media_type="text/html; charset=utf-8")

    async def static(self, request: Request) -> Response:
        """GET /static/NAME: the page's script or style; a name is looked up and never opened."""
        name: str = request.path_params["name"]
        if name not in static():
            return error(404, "There is no such part of the page.")
        content, kind = static()[name]
        return Response(content, media_type=kind)

    async def run(self, request: Request) -> Response:
        """GET /api/run: what is known of the run."""
        return JSONResponse(self.subject.facts() | {"metrics": await run_in_threadpool(self.subject.lines)})

    async def metrics(self, request: Request) -> Response:
        """GET /api/metrics?since=N: the run's figures from line N on, and the checkpoints that there are."""
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal() and len(since) < 10):
            return error(400, "since must be a whole number, the lines that are known.")
        lines = await run_in_threadpool(self.subject.lines, int(since))
        return JSONResponse({"lines": lines, "next": int(since) + len(lines), "kept": list(self.subject.kept())})

    async def others(self, request: Request) -> Response:
        """GET /api/others: name and figures of the runs beside this one."""
        return JSONResponse({"runs": await run_in_threadpool(self.subject.beside)})

    async def history(self, request: Request) -> Response:
        """GET /api/history: the role of each head over the checkpoints of the run."""
        if self.subject.history is None:
            return error(400, "There is no run behind this page, and so no checkpoint.")
        try:
            return JSONResponse(await run_in_threadpool(self.subject.history))
        except GlassformerError as mistake:
            return error(400, str(mistake))

    async def list_traces(self, request: Request) -> Response:
        """GET /api/traces: id and title of each."""
        told = [{"id": name, "title": title(each.trace)} for name, each in self.traces.items()]
        return JSONResponse({"traces": told})

    async def trace(self, request: Request) -> Response:
        """GET /api/trace/ID: the container."""
        found = self.traces.get(request.path_params["id"])
        if found is None:
            return error(404, "There is no such trace.")
        return Response(await run_in_threadpool(found.trace.to_bytes), media_type="application/octet-stream")

    async def header(self, request: Request) -> Response:
        """GET /api/trace/ID/header: the header alone."""
        found = self.traces.get(request.path_params["id"])
        if found is None:
            return error(404, "There is no such trace.")
        return Response(found.header, media_type="application/json")

    async def buffer(self, request: Request) -> Response:
        """GET /api/trace/ID/buffer/NAME?layer=L: a buffer, or one layer of it, as it is stored."""
        found, name = self.traces.get(request.path_params["id"]), request.path_params["name"]
        if found is None or name not in found.trace.buffers:
            return error(404, "There is no such buffer.")
        asked = request.query_params.get("layer")
        layer = (
            None if asked is None else int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 6 else -1
        )
        if layer is not None and not 0 <= layer < len(found.trace.buffers[name][1]):
            return error(400, "layer must be the number of a layer, from 0.")
        return Response(piece(found.trace.buffers, name, layer), media_type="application/octet-stream")

    async def make(self, request: Request) -> Response:
        """POST /api/trace {text, gold, decode}: the model answers a text; {id} of the trace."""

        def work(data: bytes) -> dict[str, Any]:
            asked = trace_request(data)
            made = self.subject.trace(asked.text, asked.gold, asked.sampling, asked.max_new_tokens)
            return {"id": self.keep(made)}

        return await self.attempt(request, work)

    async def ablate(self, request: Request) -> Response:
        """POST /api/ablate {trace, heads}: what the model writes with these heads and without, and its figure."""

        def work(data: bytes) -> dict[str, Any]:
            asked = ablate_request(data)
            known, silence = self.traces.get(asked.trace), self.subject.silence
            if known is None or silence is None:
                raise GlassformerError("Heads are taken out of a trace that is known; open one of this launch.")
            read = known.trace.header["sequences"]
            side = read.get("source") or read["target"]
            ids = [id for id, special in zip(side["ids"], side["special"], strict=True) if not special]
            begun = ids[: side.get("n_prompt", len(ids))] if "source" not in read else ids
            before = self.subject.trace(begun), self.subject.score and self.subject.score()
            with silence(self.subject.model, asked.heads):
                after = self.subject.trace(begun), self.subject.score and self.subject.score()
            told: dict[str, Any] = {"before": before[0].output, "after": after[0].output}
            if before[1] and after[1]:
                name, value, n = before[1]
                told["metrics"] = {"name": name, "before": value, "after": after[1][1], "n": n}
            return told

        return await self.attempt(request, work)

    async def patch(self, request: Request) -> Response:
        """POST /api/patch {trace, other}: what of the one brings its answer back in a run with the other's text."""

        def work(data: bytes) -> dict[str, Any]:
            asked = patch_request(data)
            one, other = self.traces.get(asked.trace), self.traces.get(asked.other)
            if one is None or other is None:
                raise GlassformerError("Two traces that are known are compared; open them in this launch.")
            return patching_as_json(patch_traces(self.subject.model, one.trace, other.trace))

        return await self.attempt(request, work)

    async def attempt(self, request: Request, work: Callable[[bytes], dict[str, Any]]) -> Response:
        """What the model makes of a request, or the sentence that says what is wrong with it."""
        data = await body_of(request)
        if data is None:
            return error(413, f"A request may have {MOST_BODY:,} bytes.")

        def alone(given: bytes) -> dict[str, Any]:
            with self.lock:
                return work(given)

        try:
            return JSONResponse(await run_in_threadpool(alone, data))
        except GlassformerError as mistake:
            return error(400, str(mistake))


def title(trace: Trace) -> str:
    """The first words that were read."""
    sequences = trace.header["sequences"]
    side = sequences.get("source") or sequences["target"]
    words = [text for text, special in zip(side["text"], side["special"], strict=True) if not special][:24]
    return ("" if all(len(word) <= 1 for word in words) else " ").join(words)[:60] or "(empty)"
