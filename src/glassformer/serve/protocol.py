"""HTTP for untrusted clients: close connections that send too slowly, stop reading or exceed the connection limit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast, runtime_checkable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.serve.guard import ABORT, LONGEST_HEAD
from glassformer.serve.refusal import RefusalError
from glassformer.serve.settings import ServeConfig

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None

LEAST = 1024
"""Bytes that a client must take a second, of those that wait for it; a trickle would hold its connection for ever."""
LONG = RefusalError(
    431,
    f"The head of a request may have at most {LONGEST_HEAD} bytes; this one has more. Send less.",
    code="head_too_large",
)
GARBLED = RefusalError(
    400,
    "A request must be valid HTTP/1.1; this one cannot be read. Send it with an HTTP client, with one Host header.",
    code="not_http",
)


def full(most: int) -> RefusalError:
    """Return the refusal for one connection too many."""
    message = f"This server has at most {most} connections open; all are taken. Try again later."
    return RefusalError(503, message, code="too_many")


def slow(patience: float) -> RefusalError:
    """Return the refusal for a request that does not arrive in time."""
    message = f"A request must arrive within {patience:g} seconds, head and body; this one did not. Send it faster."
    return RefusalError(408, message, code="too_slow")


def protocol_of(config: ServeConfig) -> type[H11Protocol]:
    """Return the protocol class with these limits; a class, because uvicorn creates the instances."""
    return type("PatientProtocol", (Patient,), {"patience": config.patience, "most": config.connections})


class Patient(H11Protocol):
    """uvicorn's protocol with time limits, so that a few clients cannot hold all connections.

    A request, head and body, has `patience` seconds from its first byte; a trickle of bytes does not extend them (slow
    loris). A connection with unsent bytes, of whatever answer, is dropped if the client takes fewer than `LEAST` a
    second of them between two looks, `patience` seconds apart; one that goes on reading gets all.
    """

    patience = 10.0
    most = 768

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accept a connection if the limit allows one more."""
        if len(self.connections) >= self.most:
            transport.write(raw(full(self.most)))
            transport.close()
            self.refused = True
            return
        super().connection_made(transport)
        # An answer waits while bytes are left, so their number falls, and shows whether the client reads.
        transport.set_write_buffer_limits(high=0)
        self._expect()

    refused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a connection."""
        self._relax()
        self._watched()
        if not self.refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read more of a request."""
        if not self.refused and not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        """Parse what has arrived, pipelined requests included; stop the timer once a request is complete."""
        super().handle_events()
        if cast("object", self.scope) is not None:
            cast("dict[str, Any]", self.scope)[ABORT] = self.transport.abort
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY or (theirs is h11.IDLE and self.timeout_keep_alive_task is None):
            self._expect()
        else:
            self._relax()

    def send_400_response(self, msg: str) -> None:
        """Refuse an unreadable request in our own format, unless a response has begun; then close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(raw(LONG if len(self.conn.trailing_data[0]) > LONGEST_HEAD else GARBLED))
        self.transport.close()

    def pause_writing(self) -> None:
        """Watch the client from now on: there are bytes that it has not taken."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Go on with what waits to be sent: the client has taken all bytes."""
        self._watched()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. One with unsent bytes of its last answer is not idle: it is asked again later."""
        end: Callable[[], None] = super().timeout_keep_alive_handler
        if self.transport.get_write_buffer_size():
            again = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, again)
        else:
            end()

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.patience, self._give_up)

    def _relax(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _watch(self) -> None:
        self._look = self.loop.call_later(self.patience, self._look_again, self._left())

    def _watched(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _left(self) -> int:
        """Bytes that the client has not taken: here, and in the kernel, which sends long before it asks for more."""
        line = self.transport.get_extra_info("socket")
        return self.transport.get_write_buffer_size() + (0 if line is None else in_kernel(line))

    def _look_again(self, before: int) -> None:
        if before - self._left() >= min(before, LEAST * self.patience):
            self._watch()
        else:  # closing would wait for the bytes to be taken
            self.transport.abort()

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if cast("object", self.cycle) is None or not self.cycle.response_started:
            self.transport.write(raw(slow(self.patience)))
        self.transport.close()


@runtime_checkable
class Descriptor(Protocol):
    """What has a file descriptor: a socket."""

    def fileno(self) -> int:
        """Return the descriptor, as a whole number."""
        ...


def in_kernel(line: Descriptor) -> int:
    """Return how many bytes the kernel keeps for the other side of a connection; 0 where it does not tell."""
    if fcntl is None or termios is None:
        return 0
    with suppress(OSError):
        return int.from_bytes(fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0


def raw(refused: RefusalError) -> bytes:
    """Return a refusal as raw HTTP bytes, for requests that never reach the application."""
    head = f"HTTP/1.1 {refused.status} \r\nconnection: close\r\ncontent-type: application/json\r\n"
    more = "".join(f"{name}: {value}\r\n" for name, value in refused.headers.items())
    return f"{head}{more}content-length: {len(refused.content)}\r\n\r\n".encode() + refused.content
