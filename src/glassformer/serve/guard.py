"""Checking each request before its body is read (Host, Origin, key), and turning every error into a JSON answer."""

from __future__ import annotations

import hmac
import secrets
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from glassformer.base.errors import BusyError, GlassformerError
from glassformer.base.loopback import Host, as_address, is_loopback, is_own_page, read_host
from glassformer.serve.refusal import RefusalError, broken, busy
from glassformer.serve.settings import ServeConfig

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
        return busy(error)
    if isinstance(error, GlassformerError):
        return RefusalError(400, str(error))
    number = secrets.token_hex(4)
    say(f"error {number}: {''.join(traceback.format_exception(error))}")
    return broken(number)


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
