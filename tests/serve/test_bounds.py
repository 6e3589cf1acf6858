"""The numbers that a field takes: those that docs/serving.md lists, up to both ends, and none beyond."""

import gzip
import json
from pathlib import Path

import pytest

from glassformer.data.tokens.vocabulary import EOS
from glassformer.serve import request
from glassformer.serve.settings import ServeConfig
from serve.wire import Wire

PATH = "/v1/completions"
DOCS = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
WHOLE = 2**31 - 1
BOUNDS = [
    ("max_tokens", 1, ServeConfig().max_new_tokens, 1), ("temperature", 0, 2, 0.01), ("n", 1, ServeConfig().rows, 1),
    ("logprobs", 0, request.MOST_LOGPROBS, 1), ("seed", 0, 2**64 - 1, 1), ("presence_penalty", -2, 2, 0.01),
    ("frequency_penalty", -2, 2, 0.01), ("top_k", 1, WHOLE, 1), ("min_p", 0, 1, 0.01), ("no_repeat_ngram", 1, WHOLE, 1),
    ("min_new_tokens", 0, WHOLE, 1),
]  # fmt: skip
"""Field, least and most, and the step to the next number beyond."""
ABOVE = [("top_p", 1), ("typical_p", 1), ("repetition_penalty", 100)]
"""Fields of numbers above 0, and the most."""
ENDS = {"logit_bias": {str(EOS): 100}}


@pytest.fixture(scope="module")
def usual(writer):
    """A server with the usual limits, which the document lists."""
    with Wire(writer) as made:
        yield made


def row_of(name: str) -> str:
    return next(line for line in DOCS.splitlines() if line.startswith(f"| `{name}` | "))


@pytest.mark.parametrize(("name", "least", "most", "step"), BOUNDS)
def test_a_field_takes_its_numbers(usual, name, least, most, step):
    assert f"| {least} to {most}" in row_of(name)
    for value in (least, most):
        heard = usual.ask(PATH, {"prompt": "a", "max_tokens": 1, **ENDS, name: value})
        assert heard.status == 200, heard.parts
    for value in (least - step, most + step):
        heard = usual.ask(PATH, {"prompt": "a", **ENDS, name: value})
        assert (heard.status, heard.error["param"]) == (400, name)
        assert f"from {least} to {most}; got {value}" in heard.error["message"]


@pytest.mark.parametrize(("name", "most"), ABOVE)
def test_a_field_takes_numbers_above_zero(usual, name, most):
    assert f"| above 0, to {most}" in row_of(name)
    for value in (0.001, most):
        assert usual.ask(PATH, {"prompt": "a", "max_tokens": 1, name: value}).status == 200
    for value in (0, -1, most + 0.01):
        heard = usual.ask(PATH, {"prompt": "a", name: value})
        assert (heard.status, heard.error["param"]) == (400, name)


def test_lists_and_texts(usual):
    bias = {str(id): 1 for id in range(usual.service.vocab_size)}
    longest = ["s" * request.LONGEST_STOP] * request.MOST_STOPS
    options = {"prompt": ["a"] * ServeConfig().rows, "max_tokens": 1, "stop": longest, "logit_bias": bias}
    assert usual.ask(PATH, options).status == 200
    assert f"up to {request.MOST_STOPS} texts of 1 to {request.LONGEST_STOP} characters" in row_of("stop")
    assert f"up to {request.MOST_BIASES} numbers from -100 to 100" in row_of("logit_bias")
    assert f"{ServeConfig().rows} prompts" in row_of("prompt")


def test_the_document_lists_each_field_that_works():
    """And the fields that are known to a client which mistypes one are the same."""
    listed = {line.split("`")[1] for line in DOCS.splitlines() if line.startswith("| `") and line.count(" | ") == 3}
    assert listed == request.COMPLETION - {"response_format", "structured_outputs"}


@pytest.mark.parametrize("name", ["best_of", "suffix"])
def test_what_is_not_supported_is_not_called_known(usual, name):
    assert f"'{name}'" not in usual.ask(PATH, {"promt": "a"}).error["message"]
    assert f"`{name}`" in DOCS


UNSUPPORTED = [
    ({"best_of": 3}, "best_of is not supported"),
    ({"best_of": 1, "n": 2}, ""),
    ({"best_of": 2, "n": 2}, ""),
    ({"best_of": 3, "n": 2}, "Use n, and remove best_of"),
    ({"best_of": True}, "got best_of=true"),
    ({"best_of": []}, "got best_of=[]"),
    ({"best_of": None, "suffix": None, "echo": None, "stream_options": None}, ""),
    ({"suffix": ""}, ""),
    ({"suffix": "x"}, "suffix is not supported"),
    ({"suffix": False}, "suffix is not supported"),
    ({"stream": True, "stream_options": {"include_obfuscation": False}}, ""),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "include_obfuscation is not supported"),
]


@pytest.mark.parametrize(("fields", "message"), UNSUPPORTED)
def test_a_field_that_is_not_supported_may_ask_for_nothing(usual, fields, message):
    heard = usual.ask(PATH, {"prompt": "a", "max_tokens": 1, **fields})
    if message:
        assert heard.status == 400
        assert message in heard.error["message"]
    else:
        assert heard.status == 200


METHODS = {"/health": "GET, HEAD", "/v1/models": "GET, HEAD", "/v1/models/tiny": "GET, HEAD", "/v1/translate": "POST"}


@pytest.mark.parametrize(("path", "allowed"), [*METHODS.items(), (PATH, "POST")])
def test_a_path_says_its_methods(usual, path, allowed):
    for method in {"GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"} - {*allowed.split(", ")}:
        heard = usual.ask(path, b"{}", method=method)
        assert (heard.status, heard.headers["allow"]) == (405, allowed)
        assert heard.error["code"] == "method_not_allowed"
        message = f"{path} takes {allowed.replace(', ', ' and ')}; got {method}. Use {allowed.split(', ')[0]}."
        assert heard.error["message"] == message


def test_a_body_may_be_gzipped_within_the_same_bounds(usual):
    """What it unpacks to counts; a body of 30 KB that would be 30 MB is refused after its first megabytes."""
    host, packed = ("host", "localhost:8000"), ("content-encoding", "gzip")
    plain = json.dumps({"prompt": "a", "max_tokens": 3, "temperature": 0}).encode()

    def ask(data: bytes, *encodings: tuple[str, str]):
        heard = usual.ask(PATH, data, method="POST", headers=(host, *encodings))
        return heard.status, heard.json["choices"][0]["text"] if heard.status == 200 else heard.error["message"]

    right = ask(plain)
    assert right[0] == 200
    assert ask(gzip.compress(plain), packed) == right
    assert ask(plain, ("content-encoding", "identity")) == right
    most = ServeConfig().max_body
    for data, encoding, status, words in (
        (gzip.compress(b" " * (most + 1)), "gzip", 413, f"at most {most} bytes"),
        (gzip.compress(plain)[:-3], "gzip", 400, "ends too early"),
        (gzip.compress(plain) + b"x", "gzip", 400, "bytes behind its end"),
        (plain, "gzip", 400, "is no gzip"),
        (plain, "br", 415, "Content-Encoding 'br'"),
        (gzip.compress(gzip.compress(plain)), "gzip, gzip", 415, "'gzip, gzip'"),
    ):
        found = ask(data, ("content-encoding", encoding))
        assert found[0] == status
        assert words in found[1]
