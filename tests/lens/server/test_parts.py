"""A trace in parts, and two traces against each other, as the server gives them."""

from __future__ import annotations

import json
import socket

import pytest

from glassformer.lens.page.bundle import resources, served
from glassformer.lens.server.app import listen
from glassformer.lens.trace.pair import patch_traces, patching_as_json
from glassformer.lens.trace.value import from_bytes
from lens.server.asked import MODEL, ask


def test_a_trace_in_parts_is_the_whole_one(app):
    """Header, and buffers, whole or a layer at a time: what the container has."""
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    told = ask(app, "GET", "/api/trace/0/header").json
    assert told == whole.header
    for name, (_, stored) in whole.buffers.items():
        assert ask(app, "GET", f"/api/trace/0/buffer/{name}").body == stored.tobytes()
    for group in told["attention"]:
        parts = [
            ask(app, "GET", f"/api/trace/0/buffer/{group['buffer']}?layer={i}").body for i in range(group["layers"])
        ]
        assert b"".join(parts) == whole.buffers[group["buffer"]][1].tobytes()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("9/header", 404),
        ("9/buffer/a.cross", 404),
        ("0/buffer/a.nothing", 404),
        ("0/buffer/..%2fa.cross", 404),
        ("0/buffer/a.cross?layer=9", 400),
        ("0/buffer/a.cross?layer=-1", 400),
        ("0/buffer/a.cross?layer=x", 400),
        ("0/buffer/a.cross?layer=", 400),
    ],
)
def test_a_part_that_is_not_there(app, path, status):
    assert ask(app, "GET", f"/api/trace/{path}").status == status


def test_all_modules_are_asked_for_at_once():
    """Each is announced in the head, so that none waits for the one that imports it."""
    page = served()
    for name in resources():
        if name.endswith(".js") and name not in ("main.js", "types.js"):  # the page's own script; types alone
            assert f'<link rel="modulepreload" href="/static/{name}">' in page
    assert page.index('src="/static/early.js"') < page.index('src="/static/main.js"')


def test_answers_are_sent_at_once():
    """Without the name of the protocol, asyncio leaves small packets waiting; a browser may come before the server."""
    with listen(0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        socket.create_connection(listener.getsockname()).close()


def test_a_patch_is_that_of_python(app):
    ids = [ask(app, "POST", "/api/trace", json.dumps({"text": text}).encode()).json["id"] for text in ("abc", "abd")]
    told = ask(app, "POST", "/api/patch", json.dumps(dict(zip(("trace", "other"), ids, strict=True))).encode()).json
    made = [from_bytes(ask(app, "GET", f"/api/trace/{name}").body) for name in ids]
    expected = patching_as_json(patch_traces(MODEL, *made))
    assert told["streams"][0]["effects"][0] == pytest.approx([0, 0, 1, 0], abs=1e-4)
    assert told["one"] == pytest.approx(expected["one"], abs=1e-5)
    assert {each["id"]: each["effect"] for each in told["heads"]} == pytest.approx(
        {each["id"]: each["effect"] for each in expected["heads"]}, abs=1e-4
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"trace": "0"}, "other must be the id"),
        ({"trace": "0", "other": 1}, "other must be the id"),
        ({"trace": "0", "other": "99"}, "Two traces that are known"),
        ({"trace": "0", "other": "1"}, "same number of tokens"),
        ({"trace": "0", "other": "1", "heads": []}, "heads is no field"),
    ],
)
def test_patches_that_cannot_be(app, body, words):
    answer = ask(app, "POST", "/api/patch", json.dumps(body).encode())
    assert answer.status == 400
    assert words in answer.json["error"]
