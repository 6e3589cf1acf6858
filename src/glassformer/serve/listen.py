"""Running the server: one socket, one event loop, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn

from glassformer.base.loopback import is_loopback
from glassformer.serve.address import address_of
from glassformer.serve.app import application
from glassformer.serve.protocol import protocol_of
from glassformer.serve.service import Service

BACKLOG = 1024
AT_LEAST = 2
"""Seconds for connections to close at the end, however long answers took to finish."""


class Server(uvicorn.Server):
    """uvicorn's server, but it leaves signals to us and sets an event once it listens."""

    def __init__(self, config: uvicorn.Config, listening: asyncio.Event) -> None:
        super().__init__(config)
        self.listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then set `listening`."""
        await super().startup(sockets)
        self.listening.set()


def listen(service: Service, found: socket.socket) -> int:
    """Serve until a signal ends it. Returns the exit code: 0, or 130 or 143 after a second SIGINT or SIGTERM."""
    return asyncio.run(run(service, found))


async def run(service: Service, found: socket.socket) -> int:
    """Do the work of `listen` within an event loop."""
    config, loop, listening = service.config, asyncio.get_running_loop(), asyncio.Event()
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
        listening,
    )
    ending = Ending(service, server)
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, ending.on)
    service.start()
    serving = asyncio.create_task(server.serve([found]))
    said = asyncio.create_task(announce(service, found, listening))
    try:
        await serving
    finally:
        said.cancel()
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


async def announce(service: Service, found: socket.socket, listening: asyncio.Event) -> None:
    """Log the server's address once it listens."""
    await listening.wait()
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
