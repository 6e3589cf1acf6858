"""Who may ask: this machine's own browser, from the page that was opened, and nobody else.

A page of any other site can make a browser send requests here. It is kept out four times: it does not know the token,
its `Origin` is another, no CORS header lets it read an answer, and a name of its own that it leads to this machine (DNS
rebinding) stands in `Host` and is refused.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from glassformer.lens.page.bundle import POLICY

Endpoint = Callable[[Request], Awaitable[Response]]

TOKEN = "X-Glassformer-Token"
MOST_BODY = 65536
"""Bytes of a request."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(request: Request, token: str, hosts: frozenset[str]) -> Response | None:
    """The answer to a request that is refused; none to one that may pass."""
    host = request.headers.get("host", "").lower()
    if host not in hosts:
        return error(400, "This server answers to its own address only.")
    origin = request.headers.get("origin")
    if request.method != "GET" and origin is not None and origin.partition("://")[2] not in hosts:
        return error(403, "This request comes from another page.")
    if not request.url.path.startswith("/api/"):
        return None
    if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), token.encode()):
        return error(403, "The token of this launch is missing. Open the address that glassformer explore printed.")
    if request.method == "POST" and request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return error(415, "A request has the content type application/json.")
    return None


def guarded(endpoint: Endpoint, token: str, hosts: frozenset[str]) -> Endpoint:
    """The endpoint behind the guard; every answer carries the headers of the page's policy."""

    async def answer(request: Request) -> Response:
        response = refusal(request, token, hosts) or await endpoint(request)
        response.headers.update({**HEADERS, "Content-Security-Policy": POLICY})
        return response

    return answer


async def body_of(request: Request) -> bytes | None:
    """The body of a request, none where it is larger than `MOST_BODY`; no more than that is ever read."""
    parts: list[bytes] = []
    size = 0
    with suppress(ClientDisconnect):  # what has come is no request, and is refused to nobody
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                return None
            parts.append(part)
    return b"".join(parts)


def error(status: int, message: str) -> Response:
    """A refusal, with its sentence; in ASCII, as it may quote what no encoding has."""
    return Response(json.dumps({"error": message}), status, media_type="application/json")
