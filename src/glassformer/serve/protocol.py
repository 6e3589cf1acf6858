"""HTTP for strangers: a connection that sends its request too slowly is closed, and so is one too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.serve.guard import ABORT, LONGEST_HEAD
from glassformer.serve.refusal import RefusalError
from glassformer.serve.settings import ServeConfig

FULL = RefusalError(503, "This server has as many connections as it takes. Ask again later.", code="too_many")
SLOW = RefusalError(408, "A request must arrive sooner than this one does.", code="too_slow")
LONG = RefusalError(431, f"The head of a request has at most {LONGEST_HEAD} bytes. Send less.", code="head_too_large")
GARBLED = RefusalError(400, "What came is no HTTP/1.1 request. Send one, with a Host.", code="not_http")


def protocol_of(config: ServeConfig) -> type[H11Protocol]:
    """The protocol with these limits, as a class, since uvicorn makes its own instances."""
    return type("PatientProtocol", (Patient,), {"patience": config.patience, "most": config.connections})


class Patient(H11Protocol):
    """uvicorn's protocol with a time for each request to arrive whole, head and body, from its first byte on.

    A trickle of bytes does not renew the time: that is how a few clients hold a server's connections (slow loris).
    """

    patience = 10.0
    most = 768

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Takes a connection, if there is room for one more."""
        if len(self.connections) >= self.most:
            transport.write(raw(FULL))
            transport.close()
            self.refused = True
            return
        super().connection_made(transport)
        self._expect()

    refused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of a connection."""
        self._relax()
        if not self.refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if not self.refused and not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        """Takes what has come, also what came behind the request before; once it is whole its time no longer runs."""
        super().handle_events()
        if cast("object", self.scope) is not None:
            cast("dict[str, Any]", self.scope)[ABORT] = self.transport.abort
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY or (theirs is h11.IDLE and self.timeout_keep_alive_task is None):
            self._expect()
        else:
            self._relax()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is refused as all else is, unless an answer is under way; then the connection ends."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(raw(LONG if len(self.conn.trailing_data[0]) > LONGEST_HEAD else GARBLED))
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing was asked for a while; what a client leaves unread is thrown away."""
        leave: Callable[[], None] = super().timeout_keep_alive_handler
        if self.transport.get_write_buffer_size():
            leave = self.transport.abort
        leave()

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.patience, self._give_up)

    def _relax(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if cast("object", self.cycle) is None or not self.cycle.response_started:
            self.transport.write(raw(SLOW))
        self.transport.close()


def raw(refused: RefusalError) -> bytes:
    """A refusal as it goes over the line, where no application was asked."""
    head = f"HTTP/1.1 {refused.status} \r\nconnection: close\r\ncontent-type: application/json\r\n"
    more = "".join(f"{name}: {value}\r\n" for name, value in refused.headers.items())
    return f"{head}{more}content-length: {len(refused.content)}\r\n\r\n".encode() + refused.content
