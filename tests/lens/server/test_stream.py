"""An answer is told of token by token; a mistake is a refusal, and nobody writes for one who has left."""

import asyncio
import json
import threading

import pytest

from glassformer.base.errors import ConfigError
from glassformer.lens.server import requests
from glassformer.lens.server.requests import Left, streamed
from glassformer.lens.trace.make import from_bytes
from lens.server.requests_of import ask


def lines(answer):
    """The lines of an answer."""
    return [json.loads(line) for line in answer.body.decode().splitlines()]


@pytest.mark.parametrize("decode", [{"max_new_tokens": 5}, {"max_new_tokens": 5, "beam": 3}], ids=str)
def test_a_line_for_each_token_and_then_the_trace(app, decode):
    answer = ask(app, "POST", "/api/generate", json.dumps({"text": "dcba", "decode": decode}).encode())
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    *tokens, last = lines(answer)
    made = from_bytes(ask(app, "GET", f"/api/trace/{last['id']}").body)
    assert [each["token"] for each in tokens] == made.output
    assert 0 < len(tokens) <= 5


def test_a_mistake_is_a_refusal(app):
    answer = ask(app, "POST", "/api/generate", b'{"text": 3}')
    assert answer.status == 400
    assert "text" in answer.json["error"]
    assert ask(app, "POST", "/api/generate", b'{"text": "%s"}' % (b"a" * 70_000)).status == 413


class Staying:
    """A request of one who waits."""

    async def receive(self):
        await asyncio.Event().wait()


class Leaving:
    """A request of one who leaves before anything is told."""

    def __init__(self, begun):
        self.begun = begun

    async def receive(self):
        await asyncio.to_thread(self.begun.wait, 10)
        return {"type": "http.disconnect"}


async def parts_of(response, most=None):
    """What a response says, of which no more than so many parts are waited for."""
    found = []
    async for part in response.body_iterator:
        found.append(json.loads(part))
        if most is not None and len(found) == most:
            await response.body_iterator.aclose()
            break
    return found


def test_a_mistake_on_the_way_is_the_last_line():
    def work(tell, poll):
        tell({"token": "a"})
        raise ConfigError("No token may come.")

    async def asked():
        return await parts_of(await streamed(Staying(), work, threading.Event()))

    assert asyncio.run(asked()) == [{"token": "a"}, {"error": "No token may come."}]


def test_a_fault_of_ours_is_no_silence():
    def work(tell, poll):
        tell({"token": "a"})
        raise ZeroDivisionError

    async def asked():
        return await parts_of(await streamed(Staying(), work, threading.Event()))

    with pytest.raises(ZeroDivisionError):
        asyncio.run(asked())


def test_a_fault_before_anything_is_told_is_no_answer():
    def work(tell, poll):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(streamed(Staying(), work, threading.Event()))


def test_who_leaves_ends_the_writing():
    heard, ended = threading.Event(), threading.Event()

    def work(tell, poll):
        tell({"token": "a"})
        try:
            heard.wait(10)
            poll()
        except Left:
            ended.set()
            raise
        return {"id": "1"}

    async def asked():
        found = await parts_of(await streamed(Staying(), work, threading.Event()), most=1)
        heard.set()
        return found

    assert asyncio.run(asked()) == [{"token": "a"}]
    assert ended.wait(10)


def test_who_leaves_before_the_first_line_ends_it_too():
    """As a beam, which tells nothing until it is found."""
    begun, ended = threading.Event(), threading.Event()

    def work(tell, poll):
        begun.set()
        for _ in range(1000):
            try:
                poll()
            except Left:
                ended.set()
                raise
            threading.Event().wait(0.01)
        return {"id": "1"}

    response = asyncio.run(streamed(Leaving(begun), work, threading.Event()))
    assert ended.is_set()
    assert response.status_code == 400


def test_the_server_ends_what_it_works_at():
    def work(tell, poll):
        tell({"token": "a"})
        poll()
        return {"id": "1"}

    async def asked():
        ended = threading.Event()
        ended.set()
        return await parts_of(await streamed(Staying(), work, ended))

    assert "The answer was stopped" in asyncio.run(asked())[-1]["error"]


def test_an_answer_has_its_time(monkeypatch):
    monkeypatch.setattr(requests, "MOST_SECONDS", -1)

    def work(tell, poll):
        tell({"token": "a"})
        poll()
        return {"id": "1"}

    async def asked():
        return await parts_of(await streamed(Staying(), work, threading.Event()))

    assert "Ask for fewer tokens" in asyncio.run(asked())[-1]["error"]
