"""Any body at all has an answer: never a 5xx, never a dead server."""

import json
import random

import pytest

from glassformer.serve.request import TRANSLATION
from serve.wire import Wire

PATH = "/v1/completions"
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3.5, 1e308, -1e-308, 2**31, 2**64, 10**30, "", "a", "abc", "é", "\ud800", "\x00"),
    *([], {}, [1], ["a", "b"], [[7, 8], [9]], [None], {"7": 5}, {"7": "x"}, {"include_usage": True}, "Z\u20ac", [""]),
    *([[]], ["", "Z"], -(2**63), {"regex": "[a-c]{1,9}"}, {"regex": "a\ud800"}, {"json": {"const": "\ud800\x00"}}),
    *({"type": "json_object"}, {"include_obfuscation": False}, "a" * 50, [7] * 30),
]
NAMES = [
    *("model", "prompt", "max_tokens", "temperature", "top_p", "n", "stream", "stop", "logprobs", "echo", "seed"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "user", "suffix", "best_of", "stream_options", "top_k"),
    *("min_p", "typical_p", "repetition_penalty", "no_repeat_ngram", "min_new_tokens", "text", "unknown"),
    *("structured_outputs", "response_format"),
]


NAMES_OF = {PATH: NAMES, "/v1/translate": [*sorted(TRANSLATION), "prompt", "stream", "unknown"]}
READ = {PATH: ("prompt", ["a", "abc", "", [7, 8]]), "/v1/translate": ("text", ["a", "a b", ["c", "a"]])}


def fuzzed(dice: random.Random, path: str) -> bytes:
    """A body that is wrong in some places, or in all."""
    body = {name: dice.choice(VALUES) for name in dice.sample(NAMES_OF[path], dice.choice([0, 1, 1, 2, 3]))}
    if dice.random() < 0.8:
        name, usual = READ[path]
        body = {name: dice.choice(usual), "max_tokens": 2} | body
    data = bytearray(json.dumps(body).encode())
    for _ in range(dice.choice([0, 0, 0, 0, 1, 5])):
        place = dice.randrange(len(data) + 1)
        data[place : place + dice.choice([0, 1])] = bytes([dice.randrange(256)])
    return bytes(data)


def check_bodies(wire: Wire, n: int, path: str = PATH) -> None:
    dice, statuses = random.Random(7), {}
    for first in range(0, n, 8):
        bodies = [fuzzed(dice, path) for _ in range(min(8, n - first))]
        for body, requested in zip(bodies, [wire.begin(path, body) for body in bodies], strict=True):
            heard = requested.result(60)
            assert heard.status in (200, 400, 404, 413, 429), (body, heard)
            statuses[heard.status] = statuses.get(heard.status, 0) + 1
            if heard.status != 200:
                assert heard.error["message"]
    assert wire.ask("/health").json == {"status": "ok"}
    assert wire.ask(path, {READ[path][0]: "a"}).status == 200
    assert min(statuses[200], statuses[400]) > n // 10
    assert not wire.said


@pytest.mark.parametrize("n", [500, pytest.param(200_000, marks=pytest.mark.slow)])
def test_any_body_has_an_answer(wire, n):
    check_bodies(wire, n)


def test_any_body_of_a_translation_has_an_answer(answerer):
    with Wire(answerer, max_new_tokens=40, rows=8, queue=8) as wire:
        check_bodies(wire, 500, "/v1/translate")
