"""Naughty strings sent to `glassformer serve`: prompts come back, sources are answered, and no field breaks it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.wire import Wire, writer_of

PATH, ROWS = "/v1/completions", 8
FIELDS = ("model", "suffix", "max_tokens", "logit_bias", "best_of", "response_format", "structured_outputs", "stream")
"""Fields of a request in which a string is no right value, but the number of a token in logit_bias."""


@pytest.fixture(scope="module")
def wire(writer_run: Path) -> Iterator[Wire]:
    with Wire(writer_of(writer_run), max_new_tokens=900, max_prompt=900, rows=ROWS, queue=ROWS) as made:
        yield made
        assert not made.said
        assert made.ask("/health").json == {"status": "ok"}


def test_prompts_come_back_before_their_text(wire, strings):
    options = {"max_tokens": 1, "echo": True, "temperature": 0}
    for first in range(0, len(strings), ROWS):
        prompts = strings[first : first + ROWS]
        heard = wire.ask(PATH, {"prompt": prompts, **options})
        assert heard.status == 200, heard.json
        for each, choice in zip(prompts, heard.json["choices"], strict=True):
            assert choice["text"].startswith(each)


def test_stop_texts_and_names_of_users_are_taken(wire, strings):
    for each in strings:
        heard = wire.ask(PATH, {"prompt": "a", "max_tokens": 2, "stop": [each, f"{each}\n"], "user": each})
        assert heard.status == (200 if each else 400), (each, heard.json)
        if each:
            assert each not in heard.json["choices"][0]["text"]
        else:
            assert heard.error["param"] == "stop"


def value(field: str, text: str) -> Any:
    match field:
        case "logit_bias":
            return {text: 1}
        case "response_format":
            return {"type": text}
        case "structured_outputs":
            return {text: "a"}
    return text


@pytest.mark.parametrize("field", FIELDS)
def test_a_string_that_is_no_value_is_refused_by_the_name_of_its_field(field, wire, strings):
    for each in strings:
        if (field == "suffix" and not each) or (field == "logit_bias" and each.isascii() and each.isdecimal()):
            continue  # a suffix of nothing, and the number of a token
        heard = wire.ask(PATH, {"prompt": "a", "max_tokens": 1, field: value(field, each)})
        assert heard.status == (404 if field == "model" else 400), (each, heard.json)
        assert heard.error["message"].isprintable()


def test_an_unknown_field_is_refused(wire, strings):
    for each in strings:
        heard = wire.ask(PATH, {"prompt": "a", "max_tokens": 1, each: "a"})
        assert heard.status == 400
        assert heard.error["param"] == each[:60]


def test_each_text_has_an_answer(answering_run, texts):
    with Wire(writer_of(answering_run), max_new_tokens=4, max_prompt=900, rows=ROWS, queue=ROWS) as wire:
        for first in range(0, len(texts), ROWS):
            requested = texts[first : first + ROWS]
            heard = wire.ask("/v1/translate", {"text": requested, "max_tokens": 2})
            assert heard.status == 200, heard.json
            assert [each["index"] for each in heard.json["data"]] == [*range(len(requested))]
        for each in ("", " "):
            heard = wire.ask("/v1/translate", {"text": ["a", each], "max_tokens": 2})
            assert heard.status == 400
            assert "text 2 is empty" in heard.error["message"]
        assert not wire.said


@pytest.mark.parametrize("step", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_an_expression_is_followed_or_refused(step, wire, texts):
    """Each is tried in a process of its own, which takes a while."""
    for each in texts[::step]:
        heard = wire.ask(PATH, {"prompt": "a", "max_tokens": 1, "structured_outputs": {"regex": each}})
        assert heard.status in (200, 400), (each, heard.json)
        if heard.status == 400:
            assert heard.error["param"] == "structured_outputs"
