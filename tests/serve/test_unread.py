"""What a client does not read, on real connections: who takes nothing is dropped, who is slow gets all of it."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

from glassformer.data.tokens.vocabulary import EOS
from glassformer.serve.http import protocol_of
from glassformer.serve.settings import ServeConfig
from serve.process import post
from serve.wire import Wire

LIMIT = 20
"""Seconds after which a test gives up; nothing waits so long where all is well."""
PATIENCE = 0.2
LARGE = 2**20
"""Bytes: more than lie between a server and a client that reads nothing."""
GET, LAST = (f"GET / HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode() for more in ("", "Connection: close\r\n"))


def answers(size: int, pieces: int):
    """An application whose answers have so many pieces of so many bytes."""

    async def app(scope, receive, send) -> None:
        length = (b"content-length", str(pieces * size).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        for left in reversed(range(pieces)):
            await send({"type": "http.response.body", "body": bytes(size), "more_body": left > 0})

    return app


@asynccontextmanager
async def connected(app, keep_alive: int = 5, **settings):
    """A server with one connection: its state, a future of the connection's end, and the client's socket."""
    loop, state, lost = asyncio.get_running_loop(), ServerState(), asyncio.Event()
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, log_level="critical", timeout_keep_alive=keep_alive, ws="none"
    )

    class Counting(protocol_of(ServeConfig(**settings))):
        def connection_made(self, transport):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            super().connection_made(transport)

        def connection_lost(self, exc):
            super().connection_lost(exc)
            lost.set()

    server = await loop.create_server(lambda: Counting(config, state, {}, loop), "127.0.0.1", 0)
    try:
        with socket.socket() as line:
            line.setblocking(False)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(line, server.sockets[0].getsockname())
            yield state, lost, line
    finally:
        server.close()
        for each in [*state.connections]:
            each.transport.abort()


async def request_on(line: socket.socket, request: bytes = 100 * GET) -> None:
    """Send requests as long as the connection lasts."""
    while True:
        await asyncio.get_running_loop().sock_sendall(line, request)


async def all_of(line: socket.socket) -> bytes:
    parts = []
    while part := await asyncio.get_running_loop().sock_recv(line, 2**16):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(("size", "pieces"), [(2, 1), (LARGE, 1), (2**12, 2**10)], ids=["small", "large", "stream"])
def test_a_client_that_asks_and_never_reads_is_dropped(size, pieces):
    """Whatever waits to be written: the first bytes of an answer, or any later ones."""

    async def requested() -> None:
        async with asyncio.timeout(LIMIT), connected(answers(size, pieces), patience=PATIENCE) as (state, lost, line):
            with pytest.raises(ConnectionError):
                await request_on(line)
            await lost.wait()
            assert not state.connections
            await asyncio.gather(*state.tasks)  # whoever waited to write goes on

    asyncio.run(requested())


def test_who_never_reads_the_last_answer_is_dropped():
    """The server has nothing more to do for it than to close it, which waits for the bytes."""

    async def requested() -> None:
        async with asyncio.timeout(LIMIT), connected(answers(LARGE, 1), patience=PATIENCE) as (state, lost, line):
            await asyncio.get_running_loop().sock_sendall(line, LAST)
            await lost.wait()
            assert not state.connections

    asyncio.run(requested())


@pytest.mark.parametrize("request_", [GET, LAST], ids=["keep-alive", "close"])
def test_a_client_that_is_slower_than_the_keep_alive_gets_all(request_):
    """Its answer was handed over long before it has been read."""

    async def requested() -> None:
        async with asyncio.timeout(LIMIT), connected(answers(LARGE, 1), keep_alive=0) as (state, lost, line):
            await asyncio.get_running_loop().sock_sendall(line, request_)
            while not state.total_requests:
                await asyncio.sleep(0)
            for _ in range(50):  # so often the keep-alive could end
                await asyncio.sleep(0)
            head, _, body = (await all_of(line)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert len(body) == LARGE
            await lost.wait()

    asyncio.run(requested())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_what_nobody_reads_holds_up_no_end(writer, stream):
    """The server has no answer left to finish once the client is dropped."""
    whole = {"prompt": ["ab"] * 8, "max_tokens": 60, "logprobs": 5, "logit_bias": {str(EOS): -100}}
    request = post(json.dumps({**whole, "stream": stream}).encode())

    async def requested() -> int:
        async with asyncio.timeout(LIMIT), connected(wire.app, patience=PATIENCE) as (_, lost, line):
            with pytest.raises(ConnectionError):
                await request_on(line, request)
            await lost.wait()
            return await wire.service.drain(LIMIT)

    with Wire(writer) as wire:
        assert asyncio.run_coroutine_threadsafe(requested(), wire.loop).result(2 * LIMIT) == 0
