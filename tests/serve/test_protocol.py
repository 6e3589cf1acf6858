"""The time that a request has to arrive, on connections that are none."""

import asyncio
import json
import socket
import sys
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from uvicorn.server import ServerState

from glassformer.data.tokens.vocabulary import EOS
from glassformer.serve.http import ABORT, LEAST, Patient, in_kernel, protocol_of
from glassformer.serve.settings import ServeConfig
from serve.process import post
from serve.wire import Wire

WHOLE = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"


class Line(asyncio.Transport):
    """A connection that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.ended, self.unread = b"", "", 0

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        assert high == 0  # or it would not tell that bytes are left


async def silent(scope, receive, send) -> None:
    """An application that never answers."""
    await asyncio.Event().wait()


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    tasks = asyncio.all_tasks(made)
    for task in tasks:
        task.cancel()
    if tasks:
        made.run_until_complete(asyncio.wait(tasks))
    made.close()


def connected(loop, state: ServerState | None = None, app=silent, **settings) -> tuple[Patient, Line]:
    config = uvicorn.Config(app, lifespan="off", log_config=None, log_level="critical")
    protocol, line = protocol_of(ServeConfig(**settings))(config, state or ServerState(), {}, loop), Line()
    protocol.connection_made(line)
    return protocol, line


def test_a_trickle_does_not_renew_the_time(loop):
    protocol, line = connected(loop)
    first = protocol._late
    for byte in WHOLE[:-1]:
        protocol.data_received(bytes([byte]))
        assert protocol._late is first
    protocol.data_received(WHOLE[-1:])
    assert protocol._late is None
    assert first.cancelled()
    assert not line.ended


def test_who_is_too_late_is_told_so(loop):
    protocol, line = connected(loop)
    protocol.data_received(WHOLE[:30])
    protocol._give_up()
    assert line.sent.startswith(b"HTTP/1.1 408 ")
    assert line.ended == "closed"
    protocol.data_received(WHOLE[30:])
    assert protocol.scope is None  # nothing is begun on a line that ends


def test_a_connection_too_many(loop):
    state = ServerState()
    assert not connected(loop, state, connections=1)[1].ended
    protocol, line = connected(loop, state, connections=1)
    assert line.sent.startswith(b"HTTP/1.1 503 ")
    assert line.ended == "closed"
    protocol.data_received(WHOLE)
    protocol.connection_lost(None)
    assert len(state.connections) == 1


def test_the_application_can_drop_a_connection(loop):
    protocol, line = connected(loop)
    protocol.data_received(WHOLE)
    protocol.scope[ABORT]()
    assert line.ended == "aborted"


async def quick(scope, receive, send) -> None:
    """An application that answers what it has read, and at "/" without reading it."""
    while scope["path"] != "/" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def answered(loop, data: bytes, **settings) -> tuple[Patient, Line]:
    """A connection on which this came at once, when the first request is answered."""
    protocol, line = connected(loop, app=quick, **settings)
    protocol.data_received(data)
    (first,) = protocol.tasks
    loop.run_until_complete(first)
    assert line.sent.endswith(b"ok")
    return protocol, line


@pytest.mark.parametrize("came", [len(WHOLE) - 3, len(WHOLE) - 1])
def test_a_request_behind_another_has_its_time_too(loop, came):
    protocol, line = answered(loop, WHOLE + WHOLE[:came])
    assert protocol._late is not None
    protocol.data_received(WHOLE[came:])
    assert protocol._late is None
    protocol.scope[ABORT]()
    assert line.ended == "aborted"


def test_who_asks_nothing_more_is_left_to_the_keep_alive(loop):
    protocol, line = answered(loop, WHOLE)
    assert protocol._late is None
    assert protocol.timeout_keep_alive_task is not None
    protocol.data_received(WHOLE[:30])
    assert protocol._late is not None
    assert protocol.timeout_keep_alive_task is None
    assert not line.ended


@pytest.mark.parametrize(
    ("data", "status"), [(b"GARBAGE\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: " + 70_000 * b"x", 431)]
)
def test_what_is_no_request_is_refused_as_all_else_is(loop, data, status):
    protocol, line = connected(loop)
    protocol.data_received(data)
    head, _, body = line.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert line.ended == "closed"
    assert protocol.cycle is None


def test_garbage_behind_an_answer_ends_the_connection(loop):
    """Chunks that are none, of a body that nobody waited for."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    protocol, line = answered(loop, head)
    sent = line.sent
    protocol.data_received(b"zz\r\n")
    assert (line.sent, line.ended) == (sent, "closed")


def test_a_connection_rests_only_when_its_answer_is_taken(loop):
    protocol, line = answered(loop, WHOLE)
    line.unread = 1
    protocol.timeout_keep_alive_handler()
    assert (line.ended, protocol.timeout_keep_alive_task.cancelled()) == ("", False)
    line.unread = 0
    protocol.timeout_keep_alive_handler()
    assert line.ended == "closed"


@pytest.mark.parametrize(("takes", "ends"), [((39_000, 28_000, 9, 0), ""), ((39_000, 39_000), "aborted")])
def test_who_goes_on_reading_has_its_time_again(loop, takes, ends):
    """Who takes nothing between two looks is dropped."""
    protocol, line = connected(loop)
    line.unread = 50_000
    protocol.pause_writing()
    for left in takes:
        assert not line.ended
        first, line.unread = protocol._look, left
        first._run()
    assert line.ended == ends
    assert (protocol._look is first) == bool(ends)


def test_a_trickle_of_reading_is_not_enough(loop):
    protocol, line = connected(loop)
    line.unread = 50_000
    protocol.pause_writing()
    line.unread -= int(LEAST * protocol.patience) - 1
    protocol._look._run()
    assert line.ended == "aborted"


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell what they keep")
def test_what_the_kernel_has_sent_was_taken(loop):
    """It asks for more long after it has room: until then, what waits here stays."""
    protocol, line = connected(loop)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        mine, _ = server.accept()
        with mine:
            mine.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    mine.send(bytes(2**16))
            line._extra["socket"], line.unread = mine, 50_000
            protocol.pause_writing()
            before = in_kernel(mine)
            assert before > 0
            while before - in_kernel(mine) < LEAST * protocol.patience:
                client.recv(2**16)
            protocol._look._run()
            assert not line.ended
            protocol._look._run()
            assert line.ended == "aborted"


def test_who_has_read_all_is_watched_no_more(loop):
    protocol, line = connected(loop)
    line.unread = 9
    protocol.pause_writing()
    look = protocol._look
    protocol.resume_writing()
    assert look.cancelled()
    assert not protocol.flow.write_paused


def test_the_time_is_over_with_the_connection(loop):
    protocol, line = connected(loop)
    line.unread = 9
    protocol.pause_writing()
    late, look = protocol._late, protocol._look
    protocol.connection_lost(None)
    assert late.cancelled()
    assert look.cancelled()


# --- What a client does not read, on real connections: who takes nothing is dropped, who is slow gets all of it


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
async def served(app, keep_alive: int = 5, **settings):
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
        async with asyncio.timeout(LIMIT), served(answers(size, pieces), patience=PATIENCE) as (state, lost, line):
            with pytest.raises(ConnectionError):
                await request_on(line)
            await lost.wait()
            assert not state.connections
            await asyncio.gather(*state.tasks)  # whoever waited to write goes on

    asyncio.run(requested())


def test_who_never_reads_the_last_answer_is_dropped():
    """The server has nothing more to do for it than to close it, which waits for the bytes."""

    async def requested() -> None:
        async with asyncio.timeout(LIMIT), served(answers(LARGE, 1), patience=PATIENCE) as (state, lost, line):
            await asyncio.get_running_loop().sock_sendall(line, LAST)
            await lost.wait()
            assert not state.connections

    asyncio.run(requested())


@pytest.mark.parametrize("request_", [GET, LAST], ids=["keep-alive", "close"])
def test_a_client_that_is_slower_than_the_keep_alive_gets_all(request_):
    """Its answer was handed over long before it has been read."""

    async def requested() -> None:
        async with asyncio.timeout(LIMIT), served(answers(LARGE, 1), keep_alive=0) as (state, lost, line):
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
        async with asyncio.timeout(LIMIT), served(wire.app, patience=PATIENCE) as (_, lost, line):
            with pytest.raises(ConnectionError):
                await request_on(line, request)
            await lost.wait()
            return await wire.service.drain(LIMIT)

    with Wire(writer) as wire:
        assert asyncio.run_coroutine_threadsafe(requested(), wire.loop).result(2 * LIMIT) == 0
