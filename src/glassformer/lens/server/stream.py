"""An answer that is told of while it is made: a line of JSON for each part, the last one with its outcome."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from glassformer.foundation.errors import GlassformerError
from glassformer.lens.server.guard import error

Line = dict[str, Any]
MOST_SECONDS = 60
"""That one answer may take."""


class Left(Exception):
    """Who asked has left."""


async def streamed(work: Callable[[Callable[[Line], None], Callable[[], None]], Line]) -> Response:
    """What `work(tell, poll)` tells, and then what it returns, as lines; a mistake before the first is a refusal.

    It runs on a thread of its own. `poll` is called now and then, and ends it when who asked has left, or after
    `MOST_SECONDS`.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    left = threading.Event()
    end = time.monotonic() + MOST_SECONDS

    def tell(line: Line | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def poll() -> None:
        if left.is_set():
            raise Left
        if time.monotonic() > end:
            raise GlassformerError(f"An answer may take {MOST_SECONDS} s here. Ask for fewer tokens.")

    def run() -> None:
        try:
            tell(work(tell, poll))
        except Left:
            pass
        except GlassformerError as mistake:
            tell({"error": str(mistake)})
        finally:
            tell(None)

    running = asyncio.create_task(run_in_threadpool(run))
    first = await lines.get()
    if first is not None and "error" in first:
        return error(400, first["error"])

    async def body() -> AsyncIterator[str]:
        line = first
        try:
            while line is not None:
                yield json.dumps(line) + "\n"
                line = await lines.get()
            await running  # what went wrong in it goes wrong here, too
        finally:
            left.set()

    return StreamingResponse(body(), media_type="application/x-ndjson")
