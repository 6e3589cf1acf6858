"""Clients that leave, wait, read nothing or come at the wrong time; and a server that ends, or fails inside."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import contextmanager

import pytest

from glassformer.data.tokens.vocabulary import EOS
from serve.wire import PATIENCE, Heard, Wire

PATH = "/v1/completions"
ENDLESS = {"prompt": "ab", "max_tokens": 2048, "logit_bias": {str(EOS): -100}}
SHORT = {"prompt": "ab", "max_tokens": 3, "temperature": 0}


@contextmanager
def held(wire: Wire):
    """While it lasts the engine makes no step: whoever comes, waits."""
    step, go = wire.engine.step, asyncio.Event()
    entered = []

    def waits():
        entered.append(1)
        asyncio.run_coroutine_threadsafe(go.wait(), wire.loop).result(PATIENCE)
        return step()

    wire.engine.step = waits
    try:
        yield entered
    finally:
        wire.engine.step = step
        wire.loop.call_soon_threadsafe(go.set)


def one_row(writer, **more) -> Wire:
    """A server with room for one text: a second one enters when the first has left."""
    return Wire(writer, rows=1, **more)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_row(writer, stream):
    with one_row(writer) as wire:
        for _ in range(5):
            if stream:
                heard = wire.ask(PATH, {**ENDLESS, "stream": True}, leave=lambda heard: bool(heard.parts))
                assert not heard.ended
            else:
                wire.begin(PATH, ENDLESS).cancel()
            assert wire.ask(PATH, SHORT).status == 200
        assert sum(row.ticket.request.max_new_tokens > 3 for row in wire.engine.rows) == 0


def sent(wire: Wire, *messages: dict, after: Sequence[object] = (1,)) -> list[dict]:
    """What an application sends to a client that says this and nothing more, the last once `after` holds something."""
    coming, sent = list(messages), []

    async def receive():
        while len(coming) == 1 and not after:
            await asyncio.sleep(0)
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [(b"host", b"localhost")]}
    asyncio.run_coroutine_threadsafe(wire.app(scope, receive, send), wire.loop).result(PATIENCE)
    return sent


GONE = {"type": "http.disconnect"}


def test_a_whole_answer_nobody_waits_for_is_not_sent(writer):
    body = b'{"prompt": "ab", "max_tokens": 2048}'
    with one_row(writer) as wire:
        with held(wire) as entered:
            assert sent(wire, {"type": "http.request", "body": body}, GONE, after=entered) == []
        assert wire.ask(PATH, SHORT).status == 200


def test_a_body_that_breaks_off_is_no_request(writer):
    with Wire(writer) as wire:
        assert sent(wire, {"type": "http.request", "body": b'{"prompt": "ab"', "more_body": True}, GONE) == []
        assert not wire.said


def test_what_a_slow_client_has_not_read_is_joined(writer):
    """Pieces that wait become one piece: memory hangs on the text, not on how often it was told."""
    with one_row(writer) as wire:
        body = {"prompt": "ab", "temperature": 0, "max_tokens": 36, "logit_bias": {str(EOS): -100}}
        step, over, parts = wire.engine.step, threading.Event(), []

        def watched():
            written = step()
            if any(each.end for each in written):
                over.set()
            return written

        async def slow(heard: Heard) -> None:
            parts.append(1)
            await wire.loop.run_in_executor(None, over.wait, PATIENCE)

        wire.engine.step = watched
        heard = wire.ask(PATH, {**body, "stream": True}, send=slow)
        whole = wire.ask(PATH, body).json["choices"][0]["text"]
        assert "".join(event["choices"][0]["text"] for event in heard.events[:-1]) == whole
        assert len(parts) == 3  # the first piece, all the others in one, and [DONE]


def test_an_answer_that_takes_too_long(writer):
    with one_row(writer, seconds=0.2) as wire:
        wire.ask(PATH, ENDLESS)  # the first one may be late before it is written at all
        heard = wire.ask(PATH, ENDLESS)
        tickets = [*(row.ticket for row in wire.engine.rows), *wire.engine.waiting.tickets]
        assert all(each.over for each in tickets), "it is written no further"
        assert (heard.status, heard.error["code"], heard.headers["retry-after"]) == (503, "timeout", "2")
        heard = wire.ask(PATH, {**ENDLESS, "stream": True})  # the time may be over before the first token is there
        error = heard.error if heard.status == 503 else heard.events[-1]["error"]
        assert error["code"] == "timeout"


def test_a_full_queue_sends_away(writer):
    with one_row(writer, queue=2) as wire:
        with held(wire) as entered:
            first = wire.begin(PATH, SHORT)
            while not entered:
                wire.ask("/health")
            waiting = [wire.begin(PATH, SHORT) for _ in range(1)]
            while len(wire.engine.waiting) < 2:
                wire.ask("/health")
            heard = wire.ask(PATH, SHORT)
            assert (heard.status, heard.error["code"], heard.headers["retry-after"]) == (429, "queue_full", "2")
            assert wire.ask(PATH, {**SHORT, "prompt": ["a", "b"], "n": 1}).status in (400, 429)
        assert first.result(PATIENCE).status == 200
        assert [each.result(PATIENCE).status for each in waiting] == [200]
        assert wire.ask(PATH, SHORT).status == 200


def test_all_prompts_of_a_request_wait_or_none(writer):
    with Wire(writer, rows=3, queue=3) as wire:
        with held(wire) as entered:
            first = wire.begin(PATH, SHORT)
            while not entered:
                wire.ask("/health")
            assert wire.ask(PATH, {**SHORT, "prompt": ["a", "b", "ab"]}).status == 429
            assert all(ticket.over for ticket in [*wire.engine.waiting.tickets][1:])
        assert first.result(PATIENCE).status == 200


def test_draining(writer):
    with one_row(writer) as wire:
        with held(wire):
            begun = wire.begin(PATH, SHORT)
            while not wire.engine.busy:
                wire.ask("/health")
            drained = asyncio.run_coroutine_threadsafe(wire.service.drain(60.0), wire.loop)
            while not wire.service.draining:
                wire.ask("/v1/models")
            heard = wire.ask(PATH, SHORT)
            assert (heard.status, heard.error["code"], heard.headers["retry-after"]) == (503, "draining", "2")
            assert (wire.ask("/health").status, wire.ask("/health").json["status"]) == (503, "draining")
            assert not drained.done()
        assert begun.result(PATIENCE).status == 200
        assert drained.result(PATIENCE) == 0


def test_a_drain_that_takes_too_long_says_how_many_are_left(writer):
    with one_row(writer) as wire, held(wire):
        begun = wire.begin(PATH, SHORT)
        while not wire.engine.busy:
            wire.ask("/health")
        assert asyncio.run_coroutine_threadsafe(wire.service.drain(0.01), wire.loop).result(PATIENCE) == 1
        begun.cancel()


# --- what goes wrong inside


class Panic(BaseException):
    """As a tokenizer in another language raises it."""


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, Panic])
@pytest.mark.parametrize("stream", [True, False])
def test_a_mistake_inside_is_one_answer_with_a_number(writer, monkeypatch, kind, stream):
    tokenizer = writer.tokenizers.target
    with Wire(writer) as wire:
        assert wire.ask(PATH, SHORT).status == 200
        with monkeypatch.context() as patch:

            def breaks(ids):
                raise kind("a secret of the machine")

            patch.setattr(type(tokenizer), "adds", lambda self, id, **_: breaks(id))
            heard = wire.ask(PATH, {**SHORT, "stream": stream})
            assert (heard.status, heard.error["code"]) == (500, "internal_error")
            assert "secret" not in str(heard.json)
        [line] = wire.said
        assert heard.error["message"].split()[-1].rstrip(".") in line
        assert "a secret of the machine" in line
        assert wire.ask(PATH, SHORT).status == 200


def test_a_tokenizer_that_panics_while_it_reads(writer, monkeypatch):
    def breaks(self, text):
        raise Panic("no")

    with Wire(writer) as wire:
        with monkeypatch.context() as patch:
            patch.setattr(type(writer.tokenizers.source), "encode", breaks)
            assert wire.ask(PATH, SHORT).status == 500
        assert wire.ask(PATH, SHORT).status == 200


def test_a_step_that_fails_is_the_answer_to_those_in_it(writer, monkeypatch):
    with Wire(writer) as wire:
        head = writer.model.head.forward
        with monkeypatch.context() as patch:

            def breaks(hidden):
                raise MemoryError("no more")

            patch.setattr(writer.model.head, "forward", breaks)
            assert wire.ask(PATH, SHORT).status == 500
        assert writer.model.head.forward == head
        assert wire.ask(PATH, SHORT).status == 200


@pytest.mark.parametrize("kind", [MemoryError, Panic, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["choice", "leave"])
def test_the_thread_of_the_model_outlives_whatever_is_raised(writer, monkeypatch, kind, where):
    """A grammar that panics, a cache for which memory runs out: one answer fails, and the next one comes."""

    def breaks(*_):
        raise kind("a secret of the machine")

    with Wire(writer) as wire:
        with monkeypatch.context() as patch:
            if where == "choice":
                patch.setattr(wire.service.texts, "choice", lambda *_: breaks)
            else:
                patch.setattr(wire.engine._slots, "leave", breaks)
                assert wire.ask(PATH, SHORT).status == 200  # its row leaves before the next step
            heard = wire.ask(PATH, SHORT)
            if where == "choice":
                assert (heard.status, heard.error["code"]) == (500, "internal_error")
                assert "a secret of the machine" in wire.said[0]
        assert wire.ask(PATH, SHORT).status == 200
        assert wire.ask("/health").json == {"status": "ok"}
