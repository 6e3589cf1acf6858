"""The time that a request has to arrive, on connections that are none."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from glassformer.serve.guard import ABORT
from glassformer.serve.protocol import Patient, protocol_of
from glassformer.serve.settings import ServeConfig

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


def connected(loop, state: ServerState | None = None, **settings) -> tuple[Patient, Line]:
    config = uvicorn.Config(silent, lifespan="off", log_config=None, log_level="critical")
    protocol, line = protocol_of(ServeConfig(**settings))(config, state or ServerState(), {}, loop), Line()
    protocol.connection_made(line)
    return protocol, line


def test_a_trickle_does_not_renew_the_time(loop):
    protocol, line = connected(loop)
    first = protocol._late
    assert first is not None
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


@pytest.mark.parametrize(("unread", "ended"), [(0, "closed"), (1, "aborted")])
def test_what_is_left_unread_is_thrown_away(loop, unread, ended):
    protocol, line = connected(loop)
    line.unread = unread
    protocol.timeout_keep_alive_handler()
    assert line.ended == ended


def test_the_time_is_over_with_the_connection(loop):
    protocol, _ = connected(loop)
    late = protocol._late
    protocol.connection_lost(None)
    assert late.cancelled()
