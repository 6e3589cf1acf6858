"""Access control: only the page that this server opened in a browser of this machine may send requests.

Any other site's page can make a browser send requests here. Four barriers keep it out: it does not know the token, its
`Origin` differs, no CORS header lets it read an answer, and a domain name that it points at this machine (DNS
rebinding) appears in `Host` and is refused. A tunnel's port in `Host` is none of these, and passes.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from glassformer.base.loopback import is_loopback, is_own_page, read_host
from glassformer.lens.page.bundle import POLICY

Endpoint = Callable[[Request], Awaitable[Response]]

TOKEN = "X-Glassformer-Token"
MOST_BODY = 65536
"""The most bytes of a request's body."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(request: Request, token: str) -> Response | None:
    """Return the error response for a request to refuse, or None for one that may pass."""
    host = read_host(request.headers.getlist("host"))
    if host is None or not is_loopback(host.name):
        return error(
            400,
            "This server answers to the names of this machine only, such as localhost, at any port. Open the address "
            "that glassformer explore printed, or the end of your tunnel on this machine.",
        )
    if not is_own_page(request.headers.getlist("origin"), host):
        return error(403, "This server accepts requests from its own page only; this one comes from another page.")
    if not request.url.path.startswith("/api/"):
        return None
    if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), token.encode()):
        return error(403, "The token of this launch is missing. Open the address that glassformer explore printed.")
    if request.method == "POST" and request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return error(415, "A POST request must have the content type application/json.")
    return None


def guarded(endpoint: Endpoint, token: str) -> Endpoint:
    """Wrap an endpoint with the guard; every response gets the security headers."""

    async def answer(request: Request) -> Response:
        response = refusal(request, token) or await endpoint(request)
        response.headers.update({**HEADERS, "Content-Security-Policy": POLICY})
        return response

    return answer


async def body_of(request: Request) -> bytes | None:
    """Read the body of a request, or return None once it exceeds `MOST_BODY`; the rest is not read."""
    parts: list[bytes] = []
    size = 0
    with suppress(ClientDisconnect):  # the incomplete body is refused later, though nobody receives the refusal
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                return None
            parts.append(part)
    return b"".join(parts)


def error(status: int, message: str) -> Response:
    """Return an error response; its JSON is ASCII, as the message may quote characters that cannot be encoded."""
    return Response(json.dumps({"error": message}), status, media_type="application/json")
