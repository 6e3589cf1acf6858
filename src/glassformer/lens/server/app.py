"""The explorer's ASGI application, and a server for it on loopback."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from types import FrameType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server

from glassformer.base.errors import ConfigError
from glassformer.lens.server.api import Api
from glassformer.lens.server.requests import error, guarded
from glassformer.lens.server.subject import Subject

HOST = "127.0.0.1"
HOST6 = "::1"
TRIES = 20
"""How many free ports to try until one is free at both addresses."""


def make_app(subject: Subject, token: str) -> Starlette:
    """Build the application, with every route behind the guard, and make the traces of the subject's examples.

    Nothing is compressed: on loopback, compressing takes longer than sending the bytes.
    """
    api = Api(subject)
    routes = [
        ("/", "GET", api.page),
        ("/static/{name}", "GET", api.static),
        ("/api/run", "GET", api.run),
        ("/api/metrics", "GET", api.metrics),
        ("/api/samples", "GET", api.samples),
        ("/api/others", "GET", api.others),
        ("/api/history", "GET", api.history),
        ("/api/traces", "GET", api.list_traces),
        ("/api/trace/{id}", "GET", api.trace),
        ("/api/trace/{id}/header", "GET", api.header),
        ("/api/trace/{id}/buffer/{name}", "GET", api.buffer),
        ("/api/trace", "POST", api.make),
        ("/api/generate", "POST", api.generate),
        ("/api/ablate", "POST", api.ablate),
        ("/api/patch", "POST", api.patch),
        ("/{rest:path}", "*", _nothing),
    ]

    def route(path: str, method: str, endpoint: Callable[..., object]) -> Route:
        methods = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] if method == "*" else [method]
        return Route(path, guarded(endpoint, token), methods=methods)  # pyright: ignore[reportArgumentType]

    app = Starlette(routes=[route(*each) for each in routes])
    app.state.api = api
    return app


async def _nothing(request: Request) -> Response:
    return error(404, "There is nothing at this address.")


def new_token() -> str:
    """Return 128 random bits as URL-safe text."""
    return secrets.token_urlsafe(16)


def listen(port: int) -> list[socket.socket]:
    """Open loopback sockets at one port: at 127.0.0.1 and, if the machine has it, at ::1. Port 0 takes any free one.

    Errors: `ConfigError` if the port is taken at either address: requests to that one would reach another program.
    """
    tries = TRIES if port == 0 else 1
    while True:
        first = _listener(socket.AF_INET, HOST, port)
        if not _has_ipv6():
            return [first]
        try:
            return [first, _listener(socket.AF_INET6, HOST6, first.getsockname()[1])]
        except ConfigError:  # the port is free at the first address only
            first.close()
            tries -= 1
            if tries == 0:
                raise


def _listener(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only if the socket names its protocol; otherwise each answer may wait 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen()  # so that a browser that connects before the server runs waits and is not refused
    except OSError as reason:
        listener.close()
        raise ConfigError(
            f"The server cannot listen on port {port} of {host} ({reason.strerror}). Try --port 0 for any free port."
        ) from None
    return listener


def _has_ipv6() -> bool:
    """Whether this machine has ::1; a kernel may support IPv6 although its loopback has no such address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((HOST6, 0))
    except OSError:
        return False
    return True


class Ending(Server):
    """A server that calls `end` as soon as it begins to shut down, so that long work stops."""

    def __init__(self, config: Config, end: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.end = end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.end is not None:
            self.end()
        super().handle_exit(sig, frame)


def make_server(app: Starlette, end: Callable[[], None] | None = None) -> Server:
    """Make a server that logs only errors and stops at Ctrl-C, when it calls `end` at once."""
    return Ending(Config(app, log_level="error", lifespan="off", access_log=False, server_header=False), end)
