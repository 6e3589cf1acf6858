"""What is refused, and by what name: hosts, pages, keys, bodies, fields. Never a 5xx; the next request is served."""

import itertools
from contextlib import suppress

import pytest

from glassformer.base.errors import ConfigError, DataError, TooLongError
from glassformer.serve import request as wanted
from glassformer.serve.http import RefusalError
from glassformer.serve.request import MOST_LEVELS, read_object
from glassformer.serve.settings import ServeConfig
from serve.wire import KEY, Wire

PATH = "/v1/completions"
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW")
PATHS = ("/health", "/v1/models", "/v1/models/tiny", PATH, "/v1/translate", "/", "/v1/../etc", "/nope")
OURS = ("localhost", "LOCALHOST:8000", "127.0.0.1:80", "127.0.0.1", "[::1]:8000", "127.9.9.9:1", "here.example:8000")
STRANGE = (
    *("evil.example", "127.0.0.1.nip.io", "localhost.", "localhost.evil.example", "evil.localhost", "192.168.0.7"),
    *("", " ", "localhost:", "localhost:x", "localhost:123456", "localhost:80:80", "a@localhost", "localhost/x"),
    *("[::1", "[::2]:80", "0.0.0.0", "::1", "localhost, evil", "http://localhost", "loc\u00e4l", "0x7f000001"),
)


def host(name: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [("host", name), *more]


@pytest.fixture(scope="module")
def named(writer):
    with Wire(writer, name="here.example") as made:
        yield made


@pytest.mark.parametrize("name", STRANGE)
def test_other_hosts_are_refused_on_every_path_and_method(named, name):
    for path, method in itertools.product(PATHS, METHODS):
        heard = named.ask(path, b"{}", method=method, headers=host(name))
        assert heard.status in (400, 403), (path, method)
        assert heard.json["error"]["message"]


@pytest.mark.parametrize("name", OURS)
def test_our_hosts_are_served(named, name):
    assert named.ask("/v1/models", headers=host(name)).status == 200


def test_a_request_has_one_host(named):
    assert named.ask("/health", headers=[]).status == 400
    assert named.ask("/health", headers=[*host("localhost"), *host("localhost")]).status == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8001", "https://", "file://"])
def test_pages_of_others_are_refused(named, origin):
    for path, method in itertools.product(PATHS, METHODS):
        heard = named.ask(path, b"{}", method=method, headers=host("localhost:8000", ("origin", origin)))
        assert (heard.status, heard.error["code"]) == (403, "origin_not_allowed")


def test_our_own_page_is_served(named):
    assert named.ask("/v1/models", headers=host("localhost:8000", ("origin", "http://localhost:8000"))).status == 200


def test_methods_and_paths_that_there_are_not(named):
    assert named.ask("/nope").status == 404
    assert "Use one of GET /v1/models, POST /v1/completions" in named.ask("/nope").error["message"]
    assert "chat" not in named.ask("/nope").error["message"]
    assert "It has no chats" in named.ask("/v1/chat/completions", {"messages": []}).error["message"]
    assert named.ask("/v1/completions/", {"prompt": "a"}).status == 404


def test_every_path_but_health_asks_for_the_key(writer):
    wrong = ["", KEY, f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Basic {KEY}", "Bearer", "Bearer \u00e9" * 3]
    with Wire(writer, key=KEY, host="0.0.0.0") as wire:
        for path, method in itertools.product(PATHS[1:], METHODS):
            for shown in [None, *wrong]:
                given = [] if shown is None else [("authorization", shown)]
                heard = wire.ask(path, b"{}", method=method, headers=host("localhost", *given))
                assert (heard.status, heard.error["code"]) == (401, "invalid_api_key")
        assert wire.ask("/health").status == 200
        twice = host("localhost", *[("authorization", f"Bearer {KEY}")] * 2)
        assert wire.ask("/v1/models", headers=twice).status == 401
        right = [("authorization", f"bearer {KEY}")]
        assert wire.ask("/v1/models", headers=host("192.168.0.7:8000", *right)).status == 200
        assert wire.ask("/v1/models", headers=host("evil.example", *right)).status == 403
        assert KEY not in repr(wire.service.config)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.0.7", "example.org", "", "127.0.0.1.nip.io"])
def test_other_addresses_ask_for_a_key(address):
    with pytest.raises(ConfigError, match="needs a key"):
        ServeConfig(host=address)
    assert ServeConfig(host=address, key=KEY)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_needs_none(address):
    assert ServeConfig(host=address).key is None


@pytest.mark.parametrize("key", ["", "short", "x" * 15, "ä" * 20, "a b\n" * 9])
def test_keys_that_could_be_found(key):
    with pytest.raises(ConfigError, match="at least 16"):
        ServeConfig(key=key)


# --- bodies

LONG = 10**9
BODIES = [
    (b"", "cannot be read"),
    (b"\xff\xfe", "byte 0"),
    (b"[]", "this one is []"),
    (b"null", "null"),
    (b'"' + b"x" * 999 + b'"', "x..."),
    (b"{", "cannot be read"),
    (b'{"prompt": "a", "prompt": "b"}', "key 'prompt' is given twice"),
    (b'{"prompt": NaN}', "NaN is not a JSON number"),
    (b'{"temperature": -Infinity}', "not a JSON number"),
    (b'{"prompt": "a", "n": ' + b"9" * 3_900 + b"}", "n must be a whole number"),
    (b'{"prompt": ' + b"[" * 2_000 + b"]" * 2_000 + b"}", "nested deeper|prompt must be a text"),
]


@pytest.mark.parametrize(("body", "message"), BODIES)
def test_bodies_that_are_none(wire, body, message):
    heard = wire.ask(PATH, body)
    assert heard.status == 400
    assert any(each in heard.error["message"] for each in message.split("|")), heard.error


def test_nesting_without_end():
    with pytest.raises(RefusalError, match="nested deeper"):
        read_object(b'{"a":' * 200_000)


@pytest.mark.parametrize("field", ["temperature", "stop", "prompt", "response_format", "structured_outputs"])
def test_what_is_nested_deep_is_a_mistake_of_the_client_at_any_depth(field):
    """Where it can just be read it is too deep to be written into a message, or into a grammar."""
    beside = b"" if field == "prompt" else b'"prompt":"a",'
    for depth in [*range(95, 105), *range(800, 1_001)]:
        for begin, middle, end in ((b"[", b"", b"]"), (b'{"json":', b"1", b"}")):
            body = b'{%s"%s":%s}' % (beside, field.encode(), begin * depth + middle + end * depth)
            with suppress(RefusalError):  # and nothing else
                wanted.completion(read_object(body), "tiny", 20, ServeConfig())
    at_most = b"[" * (MOST_LEVELS - 1) + b"]" * (MOST_LEVELS - 1)
    assert [*read_object(b'{"a":%s}' % at_most)] == ["a"]
    with pytest.raises(RefusalError, match="at most 100 levels; this one is nested deeper"):
        read_object(b'{"a":[%s]}' % at_most)


FIELDS = [
    ({"prompt": 3}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [1.5]}, "prompt"), ({"prompt": [True]}, "prompt"),
    ({"prompt": [-1]}, "prompt"), ({"prompt": [10**6]}, "prompt"), ({"prompt": [2**70]}, "prompt"),
    ({"prompt": ["a"] * 9}, "prompt"), ({"prompt": "a" * 24}, "prompt"), ({"prompt": [7] * 21}, "prompt"),
    ({"prompt": "\ud800"}, "prompt"), ({"promt": "a"}, "promt"), ({"x" * 500: 1}, "x" * 60), ({"n": 1.0}, "n"),
    ({"n": "1"}, "n"), ({"n": 5, "prompt": ["a", "b"]}, "n"), ({"temperature": True}, "temperature"),
    ({"temperature": 0, "top_k": 3}, "top_k"), ({"stop": ["a"] * 17}, "stop"), ({"stop": [""]}, "stop"),
    ({"stop": "s" * 1001}, "stop"), ({"stop": [1]}, "stop"), ({"stop": "\ud800"}, "stop"),
    ({"logprobs": True}, "logprobs"), ({"max_tokens": 0}, "max_tokens"), ({"echo": 1}, "echo"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "usage"), ({"user": {}}, "user"),
    ({"logit_bias": []}, "logit_bias"), ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"999": 1}}, "logit_bias"), ({"logit_bias": {"7": 101}}, "logit_bias"),
    ({"logit_bias": {"7": 1, "07": 1}}, "logit_bias"), ({"logit_bias": {"7": None}}, "logit_bias"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), FIELDS, ids=lambda each: str(each)[:40])
def test_fields_out_of_bounds(wire, fields, param):
    heard = wire.ask(PATH, {"prompt": "a"} | fields)
    assert heard.status == 400, heard.parts
    assert heard.error["param"] == param
    assert heard.error["type"] == "invalid_request_error"
    assert len(heard.error["message"]) < 700


@pytest.mark.parametrize(("error", "code"), [(DataError, None), (TooLongError, "context_length_exceeded")])
def test_what_is_too_long_is_told_by_its_kind(wire, writer, monkeypatch, error, code):
    def refuses(*_, **__):
        raise error("A line has at most one end; this one has two. Remove one.")

    monkeypatch.setattr(writer, "ids", refuses)
    heard = wire.ask(PATH, {"prompt": "a"})
    assert (heard.status, heard.error["code"]) == (400, code)


def test_what_is_too_long_is_told_no_flag_of_the_command_line(wire):
    message = wire.ask(PATH, {"prompt": "a" * 24}).error["message"]
    assert "prompt 1 has" in message
    assert "--" not in message


def test_a_source_at_fault_is_named_by_its_field(answerer):
    with Wire(answerer) as wire:
        heard = wire.ask("/v1/translate", {"text": ["a b", ""]})
    assert heard.error["param"] == "text"
    assert "text 2 is empty" in heard.error["message"]


def test_the_field_is_the_one_that_is_to_be_changed(wire, monkeypatch):
    def refuses(**_):
        raise ConfigError("temperature=0 draws none; got top_k=3. Remove it.", setting="top_k")

    monkeypatch.setattr(wanted, "Sampling", refuses)
    assert wire.ask(PATH, {"prompt": "a"}).error["param"] == "top_k"


def test_another_model_is_not_found(wire):
    heard = wire.ask(PATH, {"prompt": "a", "model": "gpt-4"})
    assert (heard.status, heard.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("message", [True, False], ids=["said", "in chunks"])
def test_a_body_beyond_the_limit_is_not_read(wire, message):
    read = []

    def chunks():
        for _ in range(1000):
            read.append(1)
            yield b" " * 1000

    lengths = [("content-length", "1000000")] if message else []
    heard = wire.ask(PATH, chunks=chunks(), headers=[("host", "localhost"), *lengths])
    assert (heard.status, heard.error["code"]) == (413, "body_too_large")
    huge = [("host", "localhost"), ("content-length", "9" * 40)]
    assert wire.ask(PATH, b"{}", headers=huge).status == 413


def test_a_row_that_may_write_nothing_is_told_so(wire, writer):
    size = writer.tokenizers.target.vocab_size
    body = {"prompt": "a", "temperature": 0, "no_repeat_ngram": 1, "max_tokens": 40}
    heard = wire.ask(PATH, body | {"min_new_tokens": 40})
    assert heard.status == 400, size
    assert "all are forbidden" in heard.error["message"]
    heard = wire.ask(PATH, body | {"min_new_tokens": 40, "stream": True})
    assert heard.status in (200, 400)
    error = heard.events[-1]["error"] if heard.status == 200 else heard.error  # if it comes before the first event
    assert "all are forbidden" in error["message"]
