"""The application, and a server for it on loopback."""

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

from glassformer.foundation.errors import ConfigError
from glassformer.lens.server.api import Api
from glassformer.lens.server.guard import error, guarded
from glassformer.lens.server.subject import Subject

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
"""By which a browser of this machine may call it."""


def make_app(subject: Subject, token: str, port: int) -> Starlette:
    """The application: every route behind the guard. Traces of the subject's examples are made here.

    Nothing is compressed: on loopback that takes longer than to send the bytes.
    """
    api = Api(subject)
    hosts = frozenset(f"{name}:{port}" for name in NAMES)
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
        return Route(path, guarded(endpoint, token, hosts), methods=methods)  # pyright: ignore[reportArgumentType]

    app = Starlette(routes=[route(*each) for each in routes])
    app.state.api = api
    return app


async def _nothing(request: Request) -> Response:
    return error(404, "There is nothing at this address.")


def new_token() -> str:
    """128 random bits, as letters that an address can hold."""
    return secrets.token_urlsafe(16)


def listen(port: int) -> socket.socket:
    """A socket of loopback; port 0 takes any that is free. Errors: `ConfigError` for one that is taken."""
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else each answer may wait 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # a browser that comes before the server runs waits, and is not refused
    except OSError as reason:
        listener.close()
        raise ConfigError(
            f"Port {port} cannot be listened at ({reason.strerror}). Try --port 0, which takes a free one."
        ) from None
    return listener


class Ending(Server):
    """A server that says so when it begins to end, so that no answer is worked at for long any more."""

    def __init__(self, config: Config, end: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.end = end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal."""
        if self.end is not None:
            self.end()
        super().handle_exit(sig, frame)


def make_server(app: Starlette, end: Callable[[], None] | None = None) -> Server:
    """A server that says nothing of its own, and stops at Ctrl-C; `end` is called then, at once."""
    return Ending(Config(app, log_level="error", lifespan="off", access_log=False, server_header=False), end)
