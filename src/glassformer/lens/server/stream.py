"""Long work for a client that may leave: it ends then or after a minute, and can stream its progress."""

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

from glassformer.base.errors import GlassformerError
from glassformer.lens.server.guard import error

Line = dict[str, Any]
Poll = Callable[[], None]
"""Called repeatedly by long work, which ends if it raises."""
MOST_SECONDS = 60
"""The most seconds that one answer may take."""
Done = TypeVar("Done")


class Left(GlassformerError):
    """The client has left, or the server is shutting down."""


class Asker:
    """A client that waits for an answer until `left` is set; `ended` is set when the server shuts down."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended
        self.left = threading.Event()
        self.most = time.monotonic() + MOST_SECONDS

    def poll(self) -> None:
        """Raise `GlassformerError` if nobody waits any more or the time limit has passed."""
        if self.left.is_set() or self.ended.is_set():
            raise Left("The answer was stopped: its reader left, or the server is ending. Ask again.")
        if time.monotonic() > self.most:
            raise GlassformerError(f"The answer took longer than the limit of {MOST_SECONDS} s. Ask for fewer tokens.")

    async def stays(self, request: Request, waited: Awaitable[Done]) -> Done:
        """Return what `waited` gives; set `left` if the client leaves first. The request's body must have been read."""
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
    """Stream as JSON lines what `work(tell, poll)` tells and then returns.

    The work runs on another thread when its turn in the limiter `one` comes. A `GlassformerError` in it becomes the
    last line or, if it is the first, an error response.
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
