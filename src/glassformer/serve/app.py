"""The server: its routes as an ASGI application, one socket, one event loop, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator
from functools import partial

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from glassformer.base.loopback import is_loopback
from glassformer.serve.answers import Completions, Translations, model_card
from glassformer.serve.http import Guard, Receive, RefusalError, Scope, Send, no_model, protocol_of
from glassformer.serve.service import Service
from glassformer.serve.settings import address_of

# The ASGI application: its routes.

PATHS = "GET /v1/models, POST /v1/completions, POST /v1/translate, GET /health"
METHOD_NOT_ALLOWED = 405


def application(service: Service) -> Guard:
    """Build the server's ASGI application."""

    async def health(_: Request) -> Response:
        status = "draining" if service.draining else "ok" if service.runner.alive else "failed"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model_card(service.model, service.created)]})

    async def model(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name != service.model:
            raise no_model(name, service.model)
        return JSONResponse(model_card(service.model, service.created))

    router = Router(
        [
            Route("/health", health),
            Route("/v1/models", models),
            Route("/v1/models/{name}", model),
            Route("/v1/completions", Completions(service), methods=["POST"]),
            Route("/v1/translate", Translations(service), methods=["POST"]),
        ],
        redirect_slashes=False,
    )

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # makes the router raise an HTTPException instead of answering in plain text
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            raise unrouted(scope, error) from None

    return Guard(routed, service.config, service.say)


def unrouted(scope: Scope, error: HTTPException) -> RefusalError:
    """Return the refusal for a path that there is not, or that does not have this method; then it says which it has."""
    method, path = scope["method"][:20], scope["path"][:80]
    if error.status_code != METHOD_NOT_ALLOWED:
        chat = " It has no chats: a prompt is continued as it is." if "chat" in path else ""
        message = f"This server has no path {path!r}.{chat} Use one of {PATHS}."
        return RefusalError(error.status_code, message, code="not_found")
    takes = sorted((error.headers or {})["Allow"].split(", "))  # in the same order each time; the router has a set
    message = f"{path} takes {' and '.join(takes)}; got {method}. Use {takes[0]}."
    return RefusalError(METHOD_NOT_ALLOWED, message, code="method_not_allowed", headers={"allow": ", ".join(takes)})


# Running the server: one socket, one event loop, and a graceful shutdown.

BACKLOG = 1024
AT_LEAST = 2
"""Seconds for connections to close at the end, however long answers took to finish."""


class Server(uvicorn.Server):
    """uvicorn's server, but it leaves signals to us and calls `listening` once it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self.listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then call `listening`."""
        await super().startup(sockets)
        self.listening()


def listen(service: Service, found: socket.socket) -> int:
    """Serve until a signal ends it. Returns the exit code: 0, or 130 or 143 after a second SIGINT or SIGTERM."""
    return asyncio.run(run(service, found))


async def run(service: Service, found: socket.socket) -> int:
    """Do the work of `listen` within an event loop."""
    config, loop = service.config, asyncio.get_running_loop()
    server = Server(
        uvicorn.Config(
            application(service),
            http=protocol_of(config),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            proxy_headers=False,
            timeout_graceful_shutdown=AT_LEAST,
        ),
        partial(announce, service, found),
    )
    ending = Ending(service, server)
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, ending.on)
    service.start()
    try:
        await server.serve([found])
    finally:
        service.stop()
    return ending.code


def on_signal(loop: asyncio.AbstractEventLoop, number: int, act: Callable[[int], None]) -> None:
    """Let a signal end the server, also where event loops know no signals (Windows)."""

    def handle(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(act, number)

    try:
        loop.add_signal_handler(number, act, number)
    except NotImplementedError:
        signal.signal(number, handle)


def announce(service: Service, found: socket.socket) -> None:
    """Log the server's address."""
    address = address_of(service.config, found)
    to_all = "" if is_loopback(service.config.host) else ", with the key, over a connection that is not encrypted"
    service.say(f"{service.model} answers at {address}/v1{to_all}. Ctrl-C ends.")


class Ending:
    """Shutdown by signals: the first lets open answers finish within a time limit, the second ends at once."""

    def __init__(self, service: Service, server: uvicorn.Server) -> None:
        self.service, self.server = service, server
        self.code = 0
        self._task: asyncio.Task[None] | None = None

    def on(self, number: int) -> None:
        """Handle a signal."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.drain())
        else:
            self.code = 128 + number
            self.server.should_exit = self.server.force_exit = True

    async def drain(self) -> None:
        """Refuse new requests, wait for open answers up to the time limit, then stop the server.

        An answer that is finished may still be on its way to a slow client, which has what is left of the time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.service.config.drain
        seconds, open_ones = self.service.config.drain, self.service.unfinished
        have = f"{open_ones} unfinished {'answer has' if open_ones == 1 else 'answers have'} {seconds:g} seconds left"
        self.service.say(f"Ending: {have}. Send the signal again to end at once." if open_ones else "Ending.")
        if left := await self.service.drain(seconds):
            self.service.say(f"{left} {'answer was' if left == 1 else 'answers were'} cut off.")
        self.server.config.timeout_graceful_shutdown = max(AT_LEAST, round(until - loop.time()))
        self.server.should_exit = True
