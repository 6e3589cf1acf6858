"""An answer is told of token by token; a mistake is a refusal, and nobody writes for one who has left."""

import asyncio
import json
import re
import threading

import pytest

from glassformer.base.errors import ConfigError
from glassformer.lens.page.bundle import FIRST, IMPORT, resources, script, served, static
from glassformer.lens.server import requests
from glassformer.lens.server.requests import Left, streamed
from glassformer.lens.trace.make import from_bytes, patch_traces, patching_as_json
from lens.server.requests_of import MODEL, ask


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


def parts_from(work, ended: threading.Event | None = None) -> list:
    """All that is streamed of this work to a client that stays."""

    async def answer():
        return await parts_of(await streamed(Staying(), work, ended or threading.Event()))

    return asyncio.run(answer())


def test_a_mistake_on_the_way_is_the_last_line():
    def work(tell, poll):
        tell({"token": "a"})
        raise ConfigError("No token may come.")

    assert parts_from(work) == [{"token": "a"}, {"error": "No token may come."}]


def test_a_fault_of_ours_is_no_silence():
    def work(tell, poll):
        tell({"token": "a"})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parts_from(work)


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

    async def requested():
        found = await parts_of(await streamed(Staying(), work, threading.Event()), most=1)
        heard.set()
        return found

    assert asyncio.run(requested()) == [{"token": "a"}]
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


def test_an_answer_ends_with_the_server_and_has_its_time(monkeypatch):
    def work(tell, poll):
        tell({"token": "a"})
        poll()
        return {"id": "1"}

    ended = threading.Event()
    ended.set()
    assert "The answer was stopped" in parts_from(work, ended)[-1]["error"]
    monkeypatch.setattr(requests, "MOST_SECONDS", -1)
    assert "Ask for fewer tokens" in parts_from(work)[-1]["error"]


# --- A trace in parts, and two traces against each other, as the server gives them


def test_a_trace_in_parts_is_the_whole_one(app):
    """Header, and buffers, whole or a layer at a time: what the container has."""
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    response = ask(app, "GET", "/api/trace/0/header").json
    assert response == whole.header
    for name, (_, stored) in whole.buffers.items():
        assert ask(app, "GET", f"/api/trace/0/buffer/{name}").body == stored.tobytes()
    for group in response["attention"]:
        parts = [
            ask(app, "GET", f"/api/trace/0/buffer/{group['buffer']}?layer={i}").body for i in range(group["layers"])
        ]
        assert b"".join(parts) == whole.buffers[group["buffer"]][1].tobytes()


@pytest.mark.parametrize(("path", "status"), [
    ("9/header", 404),
    ("9/buffer/a.cross", 404),
    ("0/buffer/a.nothing", 404),
    ("0/buffer/..%2fa.cross", 404),
    ("0/buffer/a.cross?layer=9", 400),
    ("0/buffer/a.cross?layer=-1", 400),
    ("0/buffer/a.cross?layer=x", 400),
    ("0/buffer/a.cross?layer=", 400),
])  # fmt: skip
def test_a_part_that_is_not_there(app, path, status):
    assert ask(app, "GET", f"/api/trace/{path}").status == status


def test_all_modules_come_in_one_answer():
    """The page asks for one script and one style; the script has every module, before those that import it."""
    page, joined = served(), script()
    assert sorted(re.findall(r'(?:src|href)="(/[^"]+)"', page)) == [f"/static/{name}" for name in sorted(static())]
    places = {name: joined.find(f'modules["{name}"] = ') for name in resources() if name.endswith(".js")}
    assert [name for name, place in places.items() if place < 0] == []
    assert max(places, key=lambda name: places[name]) == FIRST
    for name, place in places.items():
        for _, imported in IMPORT.findall(resources()[name].decode()):
            assert places[imported] < place, f"{name} imports {imported}"


def test_nothing_is_left_of_imports_and_exports():
    """All are in the one form that is taken apart; a module's own names stay its own."""
    assert not re.findall(r"^\s*(?:import|export)\b.*", script(), re.MULTILINE)
    assert "</" not in script(), "it would end the script of a page in one file"
    assert script().count("\nconst ") - script().count("\nconst {") > 20
    assert re.search(r"^return \{.*\bhatching\b.*\};$", script(), re.MULTILINE)


def test_a_patch_is_that_of_python(app):
    ids = [ask(app, "POST", "/api/trace", json.dumps({"text": text}).encode()).json["id"] for text in ("abc", "abd")]
    response = ask(app, "POST", "/api/patch", json.dumps(dict(zip(("trace", "other"), ids, strict=True))).encode()).json
    made = [from_bytes(ask(app, "GET", f"/api/trace/{name}").body) for name in ids]
    expected = patching_as_json(patch_traces(MODEL, *made))
    assert response["streams"][0]["effects"][0] == pytest.approx([0, 0, 1, 0], abs=1e-4)
    assert response["one"] == pytest.approx(expected["one"], abs=1e-5)
    assert {each["id"]: each["effect"] for each in response["heads"]} == pytest.approx(
        {each["id"]: each["effect"] for each in expected["heads"]}, abs=1e-4
    )


@pytest.mark.parametrize(("body", "words"), [
    ({"trace": "0"}, "other must be the id"),
    ({"trace": "0", "other": 1}, "other must be the id"),
    ({"trace": "0", "other": "99"}, "no such trace"),
    ({"trace": "0", "other": "1"}, "same number of tokens"),
    ({"trace": "0", "other": "1", "heads": []}, "heads is not a field"),
])  # fmt: skip
def test_patches_that_cannot_be(app, body, words):
    answer = ask(app, "POST", "/api/patch", json.dumps(body).encode())
    assert answer.status == 400
    assert words in answer.json["error"]
