"""The endpoints that write text, and the JSON of their answers, complete or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from glassformer.decode.requests import FAILED
from glassformer.decode.stream import LIMITED
from glassformer.serve.http import Message, Receive, RefusalError, Scope, Send, answer, refusal_of, too_late
from glassformer.serve.request import Wanted, completion, read_object, translation
from glassformer.serve.service import Job, Piece, Service

# The JSON answers: objects of OpenAI's completions, complete or as a stream of events, and translations.

DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]


@dataclass
class Reply:
    """One completion answer: its id and date, and what each of its objects contains."""

    model: str
    echoed: Sequence[str]
    """The text to put before each text: its prompt, or nothing."""
    warnings: Sequence[str] = ()
    """Notes for the user; an answer with none has no such field."""
    logprobs: bool = False
    usage: bool = False
    """Whether a stream ends with the token counts; then its other events have none, which is said."""
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self) -> Json:
        """Return the fields that every object of a completion has."""
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}

    def choice(self, number: int, piece: Piece, *, first: bool) -> Json:
        """Return the entry in `choices` for one text or a piece of it."""
        return {
            "index": number,
            "text": (self.echoed[number] if first else "") + piece.text,
            "logprobs": asdict(piece.logprobs) if self.logprobs else None,
            "finish_reason": finish_reason(piece.end),
        }

    def whole(self, texts: Mapping[int, Piece], prompt_tokens: int) -> Json:
        """Return the complete answer with all texts."""
        choices = [self.choice(number, texts[number], first=True) for number in sorted(texts)]
        counts = usage(prompt_tokens, texts.values())
        return {**self.head(), "choices": choices, "usage": counts, **warned(self.warnings)}

    def event(self, number: int, piece: Piece, *, first: bool, begins: bool) -> bytes:
        """Return a piece as an event of a stream; `first` of its text, or the one that `begins` the stream."""
        counts = {"usage": None} if self.usage else {}
        warnings = warned(self.warnings) if begins else {}
        return event({**self.head(), "choices": [self.choice(number, piece, first=first)], **counts, **warnings})


def warned(warnings: Sequence[str]) -> Json:
    """Return the field of the warnings, if there are any."""
    return {"warnings": [*warnings]} if warnings else {}


def finish_reason(end: str) -> str | None:
    """Return why a text ended, in OpenAI's words, or None if it has not."""
    return None if not end else "length" if end == LIMITED else "stop"


def usage(prompt_tokens: int, pieces: Any) -> dict[str, int]:
    """Return the numbers of tokens read and written. A prompt of several texts is read, and counted, once."""
    written = sum(piece.tokens for piece in pieces)
    return {"prompt_tokens": prompt_tokens, "completion_tokens": written, "total_tokens": prompt_tokens + written}


def event(value: Json) -> bytes:
    """Return a server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


def as_json(value: Json) -> bytes:
    """Return compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def model_card(model: str, created: int) -> Json:
    """Return a model's entry for `GET /v1/models`."""
    return {"id": model, "object": "model", "created": created, "owned_by": "glassformer"}


# The endpoints that write text: read the request, run it, send the answer, and stop if the client leaves.

Ready = dict[int, Piece]


class GoneError(Exception):
    """The client has left, or was dropped as it no longer reads."""


class Answers(ABC):
    """The endpoint for one kind of request, as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @abstractmethod
    def wanted(self, body: dict[str, Any]) -> Wanted:
        """Parse a body. Errors: `RefusalError`."""

    @abstractmethod
    def whole(self, wanted: Wanted, job: Job, texts: Ready) -> Json:
        """Return the complete answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Errors: every refusal, as long as nothing has been sent."""
        service = self.service
        until = asyncio.get_running_loop().time() + service.config.seconds
        try:
            with service.answering():
                wanted = self.wanted(read_object(await read_body(scope, receive, service.config.max_body)))
                watch = asyncio.create_task(watch_client(receive))
                try:
                    job = await prepared_until(service.prepare(wanted), watch, until, service.config.seconds)
                    watch.add_done_callback(lambda _: job.leave())
                    await self._written(wanted, job, until, send)
                finally:
                    watch.cancel()
        except GoneError:
            return

    async def _written(self, wanted: Wanted, job: Job, until: float, send: Send) -> None:
        runner = self.service.runner
        try:
            runner.submit(job)
            await self._answer(wanted, job, pieces_until(job, until, self.service.config.seconds), send)
        finally:
            runner.cancel(job)

    async def _answer(self, wanted: Wanted, job: Job, pieces: AsyncGenerator[Ready], send: Send) -> None:
        texts: Ready = {}
        async for ready in pieces:
            texts |= ready
        await answer(send, 200, as_json(self.whole(wanted, job, texts)))


class Completions(Answers):
    """`POST /v1/completions`."""

    def wanted(self, body: dict[str, Any]) -> Wanted:
        """Parse a body. Errors: `RefusalError`, also for a model that answers sources and completes no prompts."""
        service = self.service
        if not service.continues:
            message = "This model answers sources and cannot continue a prompt. Use POST /v1/translate, with text."
            raise RefusalError(400, message, code="not_a_completion_model")
        return completion(body, service.model, service.vocab_size, service.config)

    def reply(self, wanted: Wanted, job: Job) -> Reply:
        """Return what all objects of one answer share."""
        echoed = [each.text for each in job.echoed]
        return Reply(self.service.model, echoed, job.warnings, wanted.logprobs is not None, wanted.usage)

    def whole(self, wanted: Wanted, job: Job, texts: Ready) -> Json:
        """Return a `text_completion` object."""
        return self.reply(wanted, job).whole(texts, prompt_tokens(job))

    async def _answer(self, wanted: Wanted, job: Job, pieces: AsyncGenerator[Ready], send: Send) -> None:
        if wanted.stream:
            await self._stream(wanted, job, pieces, send)
        else:
            await super()._answer(wanted, job, pieces, send)

    async def _stream(self, wanted: Wanted, job: Job, pieces: AsyncGenerator[Ready], send: Send) -> None:
        """Send events as they come. An error before the first one has its own HTTP status; a later one is an event.

        An event waits until the client has taken those before it; the protocol drops one that takes nothing.
        """
        stream = self.events(wanted, job, pieces)
        first = await anext(stream)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await send(body_of(first, more=True))
            async for each in stream:
                await send(body_of(each, more=True))
            end = DONE
        except GoneError:
            raise
        except Exception as error:
            end = event(dict(refusal_of(error, self.service.say).body))
        await send(body_of(end))

    async def events(self, wanted: Wanted, job: Job, pieces: AsyncGenerator[Ready]) -> AsyncGenerator[bytes]:
        """Yield all events but [DONE]: a `text_completion` for each piece, then one with the token counts if wanted."""
        reply, begun, counted = self.reply(wanted, job), set[int](), Piece()
        async for ready in pieces:
            events: list[bytes] = []
            for number, piece in ready.items():
                events.append(reply.event(number, piece, first=number not in begun, begins=not begun))
                begun.add(number)
                counted.tokens += piece.tokens
            yield b"".join(events)
        if wanted.usage:
            yield event({**reply.head(), "choices": [], "usage": usage(prompt_tokens(job), [counted])})


class Translations(Answers):
    """`POST /v1/translate`."""

    def wanted(self, body: dict[str, Any]) -> Wanted:
        """Parse a body. Errors: `RefusalError`, also for a model that completes prompts and answers no sources."""
        if self.service.continues:
            message = "This model continues prompts and cannot answer a source. Use POST /v1/completions, with prompt."
            raise RefusalError(400, message, code="not_a_translation_model")
        return translation(body, self.service.model, self.service.config)

    def whole(self, wanted: Wanted, job: Job, texts: Ready) -> Json:
        """Return a list of `translation` objects, in the order of the sources."""
        data = [
            {
                "object": "translation",
                "index": number,
                "text": texts[number].text,
                "finish_reason": finish_reason(texts[number].end),
            }
            for number in sorted(texts)
        ]
        counts = usage(prompt_tokens(job), texts.values())
        return {"object": "list", "model": self.service.model, "data": data, "usage": counts, **warned(job.warnings)}


def body_of(body: bytes, *, more: bool = False) -> Message:
    """Return the message that sends a piece of an answer."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def prompt_tokens(job: Job) -> int:
    """Return the number of tokens read, counting each prompt once."""
    return sum(len(request.prompt if request.source is None else request.source) for request in job.requests)


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """Read a body of at most `most` bytes; never holds more than one piece beyond them."""
    header = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    too_large = RefusalError(
        413,
        f"A request body may have at most {most} bytes; this one has more. Send a shorter one.",
        code="body_too_large",
    )
    if len(header) > 18 or int(header) > most:
        raise too_large
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise too_large
    return decoded(scope, b"".join(parts), too_large, most)


def decoded(scope: Scope, body: bytes, too_large: RefusalError, most: int) -> bytes:
    """The body unpacked, if its Content-Encoding is gzip; it never holds more than `most` bytes."""
    header = b",".join(value for name, value in scope["headers"] if name == b"content-encoding").strip().lower()
    if header in (b"", b"identity"):
        return body
    rule = "A request body may be encoded with gzip, or not at all"
    if header not in (b"gzip", b"x-gzip"):
        shown = repr(header[:40].decode("latin-1"))
        raise RefusalError(415, f"{rule}; this one has Content-Encoding {shown}. Send it plain.")
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise RefusalError(400, f"{rule}; this one is no gzip: {error}. Send it plain, or compress it again.") from None
    if len(plain) > most:
        raise too_large
    if not stream.eof or stream.unused_data:
        came = "has bytes behind its end" if stream.eof else "ends too early"
        raise RefusalError(400, f"{rule}, in one piece; this one {came}. Send it plain, or compress it again.")
    return plain


async def watch_client(receive: Receive) -> None:
    """Return when the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def prepared_until(
    work: Coroutine[Any, Any, Job], watch: asyncio.Task[None], until: float, seconds: float
) -> Job:
    """Wait for `work` to prepare a job, at most until a time; then it is abandoned or, if it has not begun, cancelled.

    Errors: those of the work; `RefusalError` after the time limit, `GoneError` if the client left.
    """
    making = asyncio.create_task(work)
    try:
        async with asyncio.timeout_at(until):
            await asyncio.wait({making, watch}, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        raise too_late(seconds) from None
    finally:
        making.cancel()
    if not making.done():
        raise GoneError
    return making.result()


async def pieces_until(job: Job, until: float, seconds: float) -> AsyncGenerator[Ready]:
    """Yield the pieces of a job. Errors: one that ended a text, `RefusalError` after the time limit, `GoneError`."""
    async with aclosing(job.pieces()) as pieces:
        while True:
            try:
                async with asyncio.timeout_at(until):
                    ready = await anext(pieces, None)
            except TimeoutError:
                raise too_late(seconds) from None
            if job.gone:
                raise GoneError
            if ready is None:
                return
            for piece in ready.values():
                if piece.end == FAILED:
                    raise piece.error or RuntimeError("a text failed without a reason")
            yield ready
