"""HTTP for untrusted clients: refusals with a status, a look at each request before its body, limits on slow ones."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.base.errors import BusyError, GlassformerError
from glassformer.base.loopback import Host, as_address, is_loopback, is_own_page, read_host
from glassformer.serve.settings import ServeConfig

# Error answers: OpenAI's error object with an HTTP status.

RETRY_AFTER = 2
"""Seconds after which a client that was turned away may ask again."""


class RefusalError(Exception):
    """An error that becomes the answer to a request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self._headers = dict(headers or {})
        self.status, self.message, self.param, self.code = status, message, param, code
        self.kind = kind or ("invalid_request_error" if status < 500 and status != 429 else "server_error")

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def content(self) -> bytes:
        """The error object as JSON."""
        return json.dumps(self.body, ensure_ascii=True).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers of the answer."""
        more = dict(self._headers)
        if self.status in (429, 503):
            more["retry-after"] = str(RETRY_AFTER)
        if self.status == 401:
            more["www-authenticate"] = "Bearer"
        return more


def no_model(requested: str, model: str) -> RefusalError:
    """Return the refusal for the name of a model that is not served."""
    message = f"This server has no model {requested[:60]!r}; its only model is {model!r}. Use that name."
    return RefusalError(404, message, param="model", code="model_not_found")


def too_late(seconds: float) -> RefusalError:
    """Return the refusal for an answer that exceeded its time limit."""
    message = f"An answer may take {seconds:g} seconds, waiting included; this one took longer. Ask for less text."
    return RefusalError(503, message, code="timeout")


# Checking each request before its body is read (Host, Origin, key), and turning every error into a JSON answer.

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Say = Callable[[str], None]

OPEN = ("/health",)
"""Paths that need no key."""
MOST_HEADERS, LONGEST_HEAD = 100, 16_384
ABORT = "glassformer.abort"
"""The scope's key for the function that drops the connection at once."""


class Guard:
    """The outermost ASGI layer. It checks every request, even for paths and methods that do not exist."""

    def __init__(self, app: App, config: ServeConfig, say: Say) -> None:
        self.app, self.config, self.say = app, config, say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. An exception becomes an error answer, or drops the connection if a response has begun."""
        if scope["type"] != "http":
            return
        begun: list[bool] = []

        async def watched(message: Message) -> None:
            begun.append(True)
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, watched)
        except Exception as error:
            refused = refusal_of(error, self.say)
            if begun:
                scope.get(ABORT, lambda: None)()
            else:
                await answer(send, refused.status, refused.content, refused.headers)

    def check(self, scope: Scope) -> None:
        """Raise `RefusalError` for too many headers, a wrong Host or Origin, or a missing or wrong key."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MOST_HEADERS or size > LONGEST_HEAD:
            rule = f"A request may have at most {MOST_HEADERS} headers, {LONGEST_HEAD} bytes in all"
            message = f"{rule}; this one has {len(headers)}, {size} bytes. Send fewer."
            raise RefusalError(431, message, code="head_too_large")
        host = check_host([value.decode("latin-1") for name, value in headers if name == b"host"], self.config)
        check_origin([value.decode("latin-1") for name, value in headers if name == b"origin"], host)
        if self.config.key is not None and scope["path"] not in OPEN:
            check_key([value for name, value in headers if name == b"authorization"], self.config.key)


def refusal_of(error: Exception, say: Say) -> RefusalError:
    """Return the refusal for an error. An unexpected one is logged with its traceback under a number for the client."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, BusyError):
        return RefusalError(429, str(error), code="queue_full", kind="rate_limit_error")
    if isinstance(error, GlassformerError):
        return RefusalError(400, str(error))
    number = secrets.token_hex(4)
    say(f"error {number}: {''.join(traceback.format_exception(error))}")
    message = f"The server failed, by no mistake of the request. Tell whoever runs it this number of its log: {number}."
    return RefusalError(500, message, code="internal_error")


def check_host(given: list[str], config: ServeConfig) -> Host:
    """Return the request's Host header if it names this server; any port is allowed.

    Without this check, an attacker's page could reach this server by a domain name of theirs that resolves to it (DNS
    rebinding), and count as one of ours. IP addresses are no names: loopback ones are always accepted, others if the
    server listens beyond this machine. Errors: `RefusalError`.
    """
    host = read_host(given)
    if host is None:
        raise RefusalError(400, f"A request needs one Host header, NAME or NAME:PORT; got {given!r:.80}. Send one.")
    own = {config.host.lower(), (config.name or "localhost").lower()}
    beyond = as_address(host.name) is not None and not is_loopback(config.host)
    if is_loopback(host.name) or host.name in own or beyond:
        return host
    name = host.name[:60]
    message = f"This server does not have the name {name!r}. Use its address, or start it with --name {name}."
    raise RefusalError(403, message, code="host_not_allowed")


def check_origin(given: list[str], host: Host) -> None:
    """Refuse requests that a browser sends from another server's page. Errors: `RefusalError` 403."""
    if not is_own_page(given, host):
        message = (
            f"Web pages of other servers may not send requests here; got Origin {given[0][:60]!r}. Ask from a program, "
            "or from a page at this server's address."
        )
        raise RefusalError(403, message, code="origin_not_allowed")


def check_key(given: list[bytes], key: str) -> None:
    """Check the bearer key in constant time. Errors: `RefusalError` 401."""
    scheme, _, shown = (given[0] if len(given) == 1 else b"").partition(b" ")
    if not (scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), key.encode())):
        came = "another one" if given else "none"
        message = f"This server needs its API key; got {came}. Send it in one header, Authorization: Bearer KEY."
        raise RefusalError(401, message, code="invalid_api_key")


async def answer(send: Send, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    """Send a complete JSON response."""
    more = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *more]})
    await send({"type": "http.response.body", "body": content})


# HTTP for untrusted clients: close connections that send too slowly, stop reading or exceed the connection limit.

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
            message = f"This server has at most {self.most} connections open; all are taken. Try again later."
            transport.write(raw(RefusalError(503, message, code="too_many")))
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
            rule = f"A request must arrive within {self.patience:g} seconds, head and body"
            message = f"{rule}; this one did not. Send it faster."
            self.transport.write(raw(RefusalError(408, message, code="too_slow")))
        self.transport.close()


def in_kernel(line: Any) -> int:
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
