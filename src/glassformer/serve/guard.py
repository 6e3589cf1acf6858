"""Before anything is read: who asks, by which name, from which page; and the named answer to whatever goes wrong."""

from __future__ import annotations

import hmac
import re
import secrets
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from glassformer.foundation.errors import BusyError, GlassformerError
from glassformer.serve.refusal import RefusalError, broken, busy
from glassformer.serve.settings import ServeConfig, as_address, is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Say = Callable[[str], None]

OPEN = ("/health",)
"""Paths that need no key."""
HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
MOST_HEADERS, LONGEST_HEAD = 100, 16_384
ABORT = "glassformer.abort"
"""Where the scope has what drops the connection at once."""


class Guard:
    """Around the whole application. Every path and method is checked, those that there are not included."""

    def __init__(self, app: App, config: ServeConfig, say: Say) -> None:
        self.app, self.config, self.say = app, config, say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. What it raises becomes an answer; where one has begun already, the connection ends."""
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
        """Errors: `RefusalError` for a wrong Host or Origin, or without the key."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > LONGEST_HEAD:
            message = f"A request has at most {MOST_HEADERS} headers of {LONGEST_HEAD} bytes in all. Send fewer."
            raise RefusalError(431, message, code="head_too_large")
        host = check_host([value.decode("latin-1") for name, value in headers if name == b"host"], self.config)
        check_origin([value.decode("latin-1") for name, value in headers if name == b"origin"], host)
        if self.config.key is not None and scope["path"] not in OPEN:
            check_key([value for name, value in headers if name == b"authorization"], self.config.key)


def refusal_of(error: Exception, say: Say) -> RefusalError:
    """What a client is told of an error. What is nobody's mistake but ours goes to the log whole, with a number."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, BusyError):
        return busy(error)
    if isinstance(error, GlassformerError):
        return RefusalError(400, str(error))
    number = secrets.token_hex(4)
    say(f"error {number}: {''.join(traceback.format_exception(error))}")
    return broken(number)


def check_host(given: list[str], config: ServeConfig) -> str:
    """The Host of a request: a name that this server is meant by, with any port; a page elsewhere cannot rename it.

    Without that, a name of an attacker's that was made to point here (DNS rebinding) would make a page of theirs one
    of ours. Addresses written out are no names: they are taken where the server listens to more than this machine.
    """
    found = HOST.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise RefusalError(400, f"A request has one Host, a name and perhaps a port; got {given!r:.80}.")
    name = found["name"].strip("[]").lower()
    allowed = {"localhost", "127.0.0.1", "::1", config.host.lower(), (config.name or "localhost").lower()}
    address = as_address(name)
    if name in allowed or (address is not None and (address.is_loopback or not is_loopback(config.host))):
        return given[0].lower()
    message = f"This server is not called {name[:60]!r}. Ask it by its address, or start it with --name {name[:60]}."
    raise RefusalError(403, message, code="host_not_allowed")


def check_origin(given: list[str], host: str) -> None:
    """A browser says which page asks: only one of this server may."""
    if given and (len(given) > 1 or given[0].lower() not in (f"http://{host}", f"https://{host}")):
        message = f"Pages of other servers may not ask this one; got Origin {given[0][:60]!r}."
        raise RefusalError(403, message, code="origin_not_allowed")


def check_key(given: list[bytes], key: str) -> None:
    """The key, compared in a time that does not hang on how much of it is right."""
    scheme, _, shown = (given[0] if len(given) == 1 else b"").partition(b" ")
    if not (scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), key.encode())):
        raise RefusalError(401, "This server asks for its key: Authorization: Bearer KEY.", code="invalid_api_key")


async def answer(send: Send, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    """A whole JSON response."""
    more = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *more]})
    await send({"type": "http.response.body", "body": content})
