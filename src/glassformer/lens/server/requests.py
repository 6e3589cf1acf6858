"""Requests of the page: only the page that this server opened may send them, and every field is checked."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from glassformer.base.errors import ConfigError, DataError, GlassformerError
from glassformer.base.loopback import is_loopback, is_own_page, read_host
from glassformer.base.registry import suggestion
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.lens.ablate import Head
from glassformer.lens.page.bundle import POLICY
from glassformer.lens.trace.reading import MOST_TOKENS, Manner, Text

# Access control: only the page that this server opened in a browser of this machine may send requests.

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


class Refused(GlassformerError):
    """A request that gets an error response with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
        try:
            response = refusal(request, token) or await endpoint(request)
        except GlassformerError as mistake:
            response = error(mistake.status if isinstance(mistake, Refused) else 400, str(mistake))
        response.headers.update({**HEADERS, "Content-Security-Policy": POLICY})
        return response

    return answer


async def body_of(request: Request) -> bytes:
    """Read the body of a request. Errors: `Refused` once it exceeds `MOST_BODY`; the rest is not read."""
    parts: list[bytes] = []
    size = 0
    with suppress(ClientDisconnect):  # the incomplete body is refused later, though nobody receives the refusal
        async for part in request.stream():
            size += len(part)
            if size > MOST_BODY:
                raise Refused(413, f"A request may have {MOST_BODY:,} bytes.")
            parts.append(part)
    return b"".join(parts)


def error(status: int, message: str) -> Response:
    """Return an error response; its JSON is ASCII, as the message may quote characters that cannot be encoded."""
    return Response(json.dumps({"error": message}), status, media_type="application/json")


# Long work for a client that may leave: it ends then or after a minute, and can stream its progress.

Line = dict[str, Any]
Poll = Callable[[], None]
"""Called repeatedly by long work, which ends if it raises."""
MOST_SECONDS = 60
"""The most seconds that one answer may take."""
Done = TypeVar("Done")


class Left(GlassformerError):
    """The client has left, or the server is shutting down."""


class Asker:
    """A client that waits for an answer until `left` is set; `ended` is set when the server shuts down."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended
        self.left = threading.Event()
        self.most = time.monotonic() + MOST_SECONDS

    def poll(self) -> None:
        """Raise `GlassformerError` if nobody waits any more or the time limit has passed."""
        if self.left.is_set() or self.ended.is_set():
            raise Left("The answer was stopped: its reader left, or the server is ending. Ask again.")
        if time.monotonic() > self.most:
            raise GlassformerError(f"The answer took longer than the limit of {MOST_SECONDS} s. Ask for fewer tokens.")

    async def stays(self, request: Request, waited: Awaitable[Done]) -> Done:
        """Return what `waited` gives; set `left` if the client leaves first. The request's body must have been read."""
        waiting = asyncio.ensure_future(waited)
        leaving = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self.left.set()
            return await waiting
        finally:
            leaving.cancel()


async def streamed(
    request: Request,
    work: Callable[[Callable[[Line], None], Poll], Line],
    ended: threading.Event,
    one: CapacityLimiter | None = None,
) -> Response:
    """Stream as JSON lines what `work(tell, poll)` tells and then returns.

    The work runs on another thread when its turn in the limiter `one` comes. A `GlassformerError` in it becomes the
    last line or, if it is the first, an error response.
    """
    loop, asker = asyncio.get_running_loop(), Asker(ended)
    lines: asyncio.Queue[Line | None] = asyncio.Queue()

    def tell(line: Line | None) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def run() -> None:
        try:
            tell(work(tell, asker.poll))
        except GlassformerError as mistake:
            tell({"error": str(mistake)})
        finally:
            tell(None)

    running = asyncio.create_task(run_sync(run, limiter=one))
    first = await asker.stays(request, lines.get())
    if first is None:
        await running  # raises: nothing was sent
    elif "error" in first:
        return error(400, first["error"])

    async def body() -> AsyncIterator[str]:
        line = first
        try:
            while line is not None:
                yield json.dumps(line) + "\n"
                line = await lines.get()
            await running  # what went wrong in it goes wrong here, too
        finally:
            asker.left.set()

    return StreamingResponse(body(), media_type="application/x-ndjson")


# Parsing the page's requests: every field is checked, and unknown fields are refused.

MOST_NEW = 256
"""The most tokens that one request may ask for."""
MOST_BEAM = 16
"""The largest beam of a request."""
KINDS = ("zero", "mean")
SOURCES = ("text", "ids", "trace")
"""The fields that name the input; a request has exactly one of them."""
DECODE = ("temperature", "top_k", "top_p", "seed", "max_new_tokens", "beam")


class TraceRequest(NamedTuple):
    """A text to answer or to continue, or a trace whose text to answer again; and how."""

    source: Text
    """A text or ids; unused if `trace` is given."""
    trace: str | None
    gold: str | None
    begin: tuple[int, ...]
    manner: Manner | None
    """None: as that trace was written, or the default."""


def patch_request(data: bytes) -> tuple[str, str]:
    """Parse `trace` and `other`, the fields of POST /api/patch. Errors: `DataError` naming the field."""
    given = fields(data, ("trace", "other"))
    return trace_id(given, "trace"), trace_id(given, "other")


def trace_id(given: Mapping[str, Any], name: str) -> str:
    """Return the id of a trace in a field. Errors: `DataError`."""
    if not isinstance(given.get(name), str):
        raise DataError(f"{name} must be the id of a trace. Take one from GET /api/traces.")
    return given[name]


def trace_request(data: bytes) -> TraceRequest:
    """Parse the fields of POST /api/trace and /api/generate. Errors: `DataError` and `ConfigError` naming the field."""
    given = fields(data, (*SOURCES, "gold", "begin", "decode"))
    named = [name for name in SOURCES if name in given]
    if len(named) != 1 or (named[0] != "ids" and not isinstance(given[named[0]], str)):
        raise DataError(
            "A request needs text (a string), ids or trace (an id), one of them. Type a text for the model."
        )
    if not isinstance(given.get("gold", ""), str):
        raise DataError("gold, the correct answer, must be a string. Leave it out if you do not know it.")
    ids, begin = ids_of(given, "ids", MOST_TOKENS), ids_of(given, "begin", MOST_NEW)
    how = manner(given["decode"]) if "decode" in given else None
    return TraceRequest(given.get("text", ids), given.get("trace"), given.get("gold"), begin, how)


def ids_of(given: Mapping[str, Any], name: str, most: int) -> tuple[int, ...]:
    """Parse a field with token ids; empty if it is absent. Errors: `DataError`."""
    ids = given.get(name, [])
    if not isinstance(ids, list) or len(ids) > most or not all(type(id) is int and 0 <= id < 2**31 for id in ids):
        raise DataError(f"{name} must be a list of at most {most:,} token ids. Correct it or leave it out.")
    return tuple(ids)


def manner(decode: object) -> Manner:
    """Parse the field `decode`: how to write an answer. Errors: `DataError` and `ConfigError` naming the field."""
    if not isinstance(decode, dict):
        raise DataError("decode must be a JSON object of settings. Correct it or leave it out.")
    known(decode, DECODE, "decode.")
    whole = {"top_k", "seed", "max_new_tokens", "beam"}
    for name, value in decode.items():
        if isinstance(value, bool) or not isinstance(value, int if name in whole else int | float):
            kind = "a whole number" if name in whole else "a number"
            raise ConfigError(f"decode.{name} must be {kind}; got {value!r:.20}. Correct it or leave it out.")
    values: dict[str, Any] = {"temperature": 0.0} | decode
    most, beam = values.pop("max_new_tokens", None), values.pop("beam", 1)
    for name, value, highest in (("max_new_tokens", most, MOST_NEW), ("beam", beam, MOST_BEAM)):
        if value is not None and not 1 <= value <= highest:
            raise ConfigError(f"decode.{name} must be a whole number from 1 to {highest}; got {value!r:.20}.")
    try:
        values |= {name: float(values[name]) for name in ("temperature", "top_p") if name in values}
    except OverflowError:
        raise ConfigError("decode.temperature and decode.top_p must be finite. Try 1.0.") from None
    return Manner(Sampling(**values), most, BeamSettings(beam=beam))


def ablate_request(data: bytes) -> tuple[str, list[Head], str]:
    """Parse `trace`, `heads` and `kind`, the fields of POST /api/ablate. Errors: `DataError` naming the field."""
    given = fields(data, ("trace", "heads", "kind"))
    heads, kind = given.get("heads"), given.get("kind", "zero")
    if kind not in KINDS:
        raise DataError(f"kind, what replaces a head's output, must be {' or '.join(KINDS)}; got {kind!r:.40}.")
    trace = trace_id(given, "trace")
    if not isinstance(heads, list) or not 1 <= len(heads) <= 4096:
        raise DataError("heads must be a list of heads. Choose at least one.")
    found: list[Head] = []
    for each in heads:
        match each:
            case {"block": str(block), "layer": int(layer), "head": int(head)} if (
                0 <= layer < 4096 and 0 <= head < 4096 and not isinstance(layer, bool) and not isinstance(head, bool)
            ):
                found.append((block, layer, head))
            case _:
                raise DataError(f"A head has the fields block, layer and head, counted from 0; got {each!r:.60}.")
    return trace, found, kind


def fields(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Parse a body as a JSON object. Errors: `DataError` for anything else, and for an unknown field."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise DataError("The body of a request must be a JSON object; this one is not.")
    known(given, names, "")
    return given


def known(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    """Raise `DataError`, with the nearest name, for an unknown field."""
    for name in given:
        if name not in names:
            raise DataError(f"{where}{name[:40]} is not a field of this request. {suggestion(name, names)}")
