"""Work for somebody who may leave: it ends then, or after a minute, and can tell of itself while it goes on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from glassformer.foundation.errors import GlassformerError
from glassformer.lens.server.guard import error

Line = dict[str, Any]
Poll = Callable[[], None]
"""Called now and then by long work; what it raises ends it."""
MOST_SECONDS = 60
"""That one answer may take."""
Done = TypeVar("Done")


class Left(GlassformerError):
    """Who asked has left, or the server ends."""


class Asker:
    """Who waits for an answer, until `left`; `ended` says that the server ends."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended
        self.left = threading.Event()
        self.most = time.monotonic() + MOST_SECONDS

    def poll(self) -> None:
        """Errors: `GlassformerError` where nobody waits any more, or it has taken too long."""
        if self.left.is_set() or self.ended.is_set():
            raise Left("Nobody waits for this answer any more. Ask again.")
        if time.monotonic() > self.most:
            raise GlassformerError(f"An answer may take {MOST_SECONDS} s here. Ask for fewer tokens.")

    async def stays(self, request: Request, waited: Awaitable[Done]) -> Done:
        """What is waited for; if the one who asked leaves before, `left` is set. The request's body has been read."""
        waiting = asyncio.ensure_future(waited)
        leaving = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self.left.set()
            return await waiting
        finally:
            leaving.cancel()


async def streamed(
    request: Request,
    work: Callable[[Callable[[Line], None], Poll], Line],
    ended: threading.Event,
    one: CapacityLimiter | None = None,
) -> Response:
    """What `work(tell, poll)` tells, and then what it returns, as lines; a mistake before the first is a refusal.

    It runs on a thread of its own, when it is its turn among all work of `one`. Errors in it: a `GlassformerError` is
    the last line.
    """
    loop, asker = asyncio.get_running_loop(), Asker(ended)
    lines: asyncio.Queue[Line | None] = asyncio.Queue()

    def tell(line: Line | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def run() -> None:
        try:
            tell(work(tell, asker.poll))
        except GlassformerError as mistake:
            tell({"error": str(mistake)})
        finally:
            tell(None)

    running = asyncio.create_task(run_sync(run, limiter=one))
    first = await asker.stays(request, lines.get())
    if first is None:
        await running  # raises: nothing was told
    elif "error" in first:
        return error(400, first["error"])

    async def body() -> AsyncIterator[str]:
        line = first
        try:
            while line is not None:
                yield json.dumps(line) + "\n"
                line = await lines.get()
            await running  # what went wrong in it goes wrong here, too
        finally:
            asker.left.set()

    return StreamingResponse(body(), media_type="application/x-ndjson")
