"""Texts that follow a grammar, over HTTP: those of the command line, beside others that follow none."""

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassformer.decode import constraints as constrained
from glassformer.decode.constraints import Constraints
from glassformer.serve import request, trial
from glassformer.serve.service import Service
from glassformer.serve.settings import ServeConfig
from serve.test_clients import GONE, sent
from serve.test_completions import PATH, texts, written
from serve.wire import PATIENCE, Wire

pytest.importorskip("llguidance", reason="llguidance is not installed")
REGEX = "(ab|ba){2,4} ?d"
SCHEMA = {"enum": [12, [1], "a"]}


def format_of(schema: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}}


def regex_of(expression: str) -> dict[str, object]:
    return {"structured_outputs": {"regex": expression}}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_texts_are_those_of_the_command_line(wire, writer, temperature):
    body = {"prompt": ["ab", "c"], "n": 2, "seed": 5, "temperature": temperature, "max_tokens": 30}
    decode = {"seed": 5, "temperature": temperature, "max_new_tokens": 30}
    found = texts(wire.ask(PATH, body | regex_of(REGEX)))
    assert found == written(writer, ["ab", "c"], 2, constraints=Constraints(regex=REGEX), **decode)
    assert all(re.fullmatch(REGEX, each) for each in found)


@pytest.mark.parametrize("written_as", [SCHEMA, json.dumps(SCHEMA)], ids=["object", "string"])
def test_schemas_by_either_name(written_as):
    plain = request.Fields({"structured_outputs": {"json": written_as}}, {"structured_outputs"})
    openai = request.Fields(format_of(written_as), {"response_format"})
    assert request.constraint_of(plain).schema == request.constraint_of(openai).schema == json.dumps(SCHEMA)
    any_object = request.Fields({"response_format": {"type": "json_object"}}, {"response_format"})
    assert request.constraint_of(any_object).schema == '{"type": "object"}'
    nothing = request.Fields({"response_format": {"type": "text"}}, {"response_format"})
    assert request.constraint_of(nothing) is None


def test_rows_beside_are_untouched(wire):
    """Clients with a grammar, with another and with none, at once and one after the other."""
    more = [{}, regex_of(REGEX), regex_of("[abcd]{3,9}"), format_of({"const": True})]
    bodies = [{"prompt": "abcd"[: 1 + i % 3], "seed": i, "max_tokens": 9} | more[i % 3] for i in range(12)]
    alone = [texts(wire.ask(PATH, body)) for body in bodies]
    with ThreadPoolExecutor(8) as clients:
        assert list(clients.map(lambda body: texts(wire.ask(PATH, body)), bodies)) == alone


def test_a_row_that_cannot_go_on_ends_no_other(wire):
    """Nothing of "true" is a character of this model."""
    good, bad = {"prompt": "ab", "temperature": 0, "max_tokens": 9}, format_of({"const": True})
    alone = texts(wire.ask(PATH, good))
    begun = [wire.begin(PATH, good), wire.begin(PATH, good | bad), wire.begin(PATH, good)]
    heard = [each.result(60) for each in begun]
    assert [texts(heard[0]), texts(heard[2])] == [alone, alone]
    assert heard[1].status == 400
    assert "must allow some token of the vocabulary at each step" in heard[1].error["message"]


def test_a_stream(wire):
    body = {"prompt": "ab", "seed": 3, "max_tokens": 20} | regex_of(REGEX)
    events = wire.ask(PATH, body | {"stream": True}).events[:-1]
    assert ["".join(event["choices"][0]["text"] for event in events)] == texts(wire.ask(PATH, body))


def test_a_text_cut_before_its_grammar_is_complete_says_so(wire):
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 3} | regex_of("[cd]{9}"))
    assert (len(texts(heard)[0]), heard.json["choices"][0]["finish_reason"]) == (3, "length")


def test_translations_follow_too(answerer):
    found = written(answerer, ["a b", "c"], max_new_tokens=None)
    with Wire(answerer) as wire:
        heard = wire.ask("/v1/translate", {"text": ["a b", "c"]} | regex_of("a"))
        assert heard.status == 400
        assert "this one has whole words only" in heard.error["message"]
        assert [each["text"] for each in wire.ask("/v1/translate", {"text": ["a b", "c"]}).json["data"]] == found


def test_text_without_ends_ends_with_its_grammar(writer, monkeypatch):
    monkeypatch.setattr(writer, "documents", False)
    with Wire(writer) as wire:
        [text] = texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 30} | regex_of("ab|cd")))
    assert text in ("ab", "cd")


BAD = [
    ({"response_format": "json"}, "response_format must be an object"),
    ({"response_format": {}}, "The type of response_format must be text"),
    ({"response_format": {"type": "xml"}}, 'got "xml"'),
    ({"response_format": {"type": "json_schema"}}, "of type json_schema needs"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "name": 3}}}, "name must be a string"),
    ({"response_format": {"type": "text", "scheme": 1}}, "'scheme' is not a field"),
    (format_of(3), "A JSON schema must be a JSON object; got '3'"),
    (format_of("{"), "is not JSON"),
    (format_of({"type": "objct"}), "Invalid type: objct"),
    (format_of({"$ref": "http://a.example/x"}), "not present"),
    ({"structured_outputs": {}}, "takes either regex or json"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "takes either regex or json"),
    ({"structured_outputs": {"regex": 3}}, "regex must be a string"),
    ({"structured_outputs": {"choice": ["a"]}}, "'choice' is not a field"),
    (regex_of("a(("), "unclosed"),
    (regex_of("(" * 900 + ")" * 900), "llguidance supports"),
    (regex_of("a?" * 500 + "a" * 500), "small enough for llguidance"),
    (regex_of("z"), "Use characters of the vocabulary"),
    (regex_of(r"[^\s\S]"), "after 0 tokens of row 0 (counted from 0), llguidance allows none"),
    (format_of({"enum": []}), "Unsatisfiable schema"),
    (format_of({}) | regex_of("a"), "got both"),
    (regex_of("a\ud800"), "half of a surrogate pair"),
]


@pytest.mark.parametrize(("more", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_mistakes(wire, more, message):
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 4} | more)
    assert heard.status == 400, heard.json
    assert message in heard.error["message"]
    assert texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 4}))


@pytest.mark.parametrize("expression", ["", "()", "a{0}", "^", "z?"])
def test_what_only_the_empty_text_matches_is_answered_with_it(wire, writer, expression):
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 4} | regex_of(expression))
    assert texts(heard) == [""]
    assert heard.json["choices"][0]["finish_reason"] == "stop"
    assert not expression or written(writer, ["ab"], constraints=Constraints(regex=expression)) == [""]


def test_one_that_takes_too_long_to_build(wire, monkeypatch):
    """As many states as the number says: this one takes seconds, one with twelve digits all memory."""
    monkeypatch.setattr(request, "SECONDS", 0.4)
    heard = wire.ask(PATH, {"prompt": "ab"} | format_of({"type": "integer", "multipleOf": 300_007}))
    assert (heard.status, heard.error["code"]) == (400, "grammar_too_large")


def test_one_that_is_too_long(writer):
    with Wire(writer) as wire:
        heard = wire.ask(PATH, {"prompt": "ab"} | regex_of("a" * 70_000))
    assert (heard.status, heard.error["param"]) == (400, "structured_outputs")


def test_without_the_library_it_says_what_to_install(wire, monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("glassformer.decode.installed.import_module", missing)
    heard = wire.ask(PATH, {"prompt": "ab"} | regex_of("abc?d"))
    assert (heard.status, heard.error["param"]) == (400, "structured_outputs")
    assert "pip install 'llguidance" in heard.error["message"]


def test_nobody_waits_for_a_grammar_of_another(wire, monkeypatch):
    """Who asks for none is answered while one is being built."""
    begun, go = threading.Event(), threading.Event()

    def slow(field: str, text: str) -> None:
        begun.set()
        go.wait(60)

    monkeypatch.setattr(request, "check_small", slow)
    waiting = wire.begin(PATH, {"prompt": "ab", "max_tokens": 4} | regex_of("[cd]{4}"))
    try:
        begun.wait(60)
        assert texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 4}))
        assert not waiting.done()
    finally:
        go.set()
    assert len(texts(waiting.result(60))[0]) == 4


@contextmanager
def building(monkeypatch):
    """While it lasts the first grammar is being built; afterwards, which ones were."""
    begun, go, built = threading.Event(), threading.Event(), []

    def slow(field: str, text: str) -> None:
        built.append(text)
        begun.set()
        go.wait(PATIENCE)

    monkeypatch.setattr(request, "check_small", slow)
    try:
        yield begun, built
    finally:
        go.set()


def test_a_grammar_has_the_time_of_its_answer(writer, monkeypatch):
    with Wire(writer, seconds=0.05) as wire:
        with building(monkeypatch) as (_, built):
            heard = [wire.ask(PATH, {"prompt": "ab"} | regex_of(each)) for each in ("[cd]{4}", "[cd]{5}")]
            assert [(each.status, each.error["code"]) for each in heard] == [(503, "timeout")] * 2
        wire.service._builder.submit(int).result(PATIENCE)
    assert len(built) == 1, "what had not begun when its time was over is not built"


def test_no_grammar_is_built_for_a_client_that_left(writer, monkeypatch):
    with Wire(writer) as wire:
        with building(monkeypatch) as (begun, built):
            first = wire.begin(PATH, {"prompt": "ab", "max_tokens": 4} | regex_of("[cd]{4}"))
            begun.wait(PATIENCE)
            body = json.dumps({"prompt": "ab"} | regex_of("[cd]{5}")).encode()
            assert sent(wire, {"type": "http.request", "body": body}, GONE) == []
        assert first.result(PATIENCE).status == 200
        assert texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 4} | regex_of("[cd]{6}")))
    assert len(built) == 2


def test_a_grammar_is_built_once(writer, monkeypatch):
    built: list[str] = []
    monkeypatch.setattr(request, "check_small", lambda field, text: built.append(text))
    made = Service(writer, "tiny", ServeConfig(), print).texts
    for temperature in (0.0, 1.0):
        for _ in range(2):
            body = {"prompt": "ab", "temperature": temperature} | regex_of("ab")
            made.job(request.completion(body, "tiny", 20, ServeConfig()))
    assert len(built) == 1


def test_all_grammars_share_the_room_for_states(writer):
    """However many there were, and however long their texts."""
    with Wire(writer, rows=2, queue=2) as wire:
        for each in ("[abcd]{30}", "[abc]{30}", "[ab]{30}"):
            assert len(texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 40} | regex_of(each)))[0]) == 30
            assert 0 < len(wire.service.texts.states) <= 2 * constrained.STATES_A_TEXT


@pytest.mark.parametrize("text", ["start: /ab/", "start: ((", ""])
def test_the_trial_of_what_is_quick_ends_well(text):
    """What is no grammar is told by whoever builds it next."""
    run = subprocess.run([sys.executable, str(Path(trial.__file__))], input=text.encode(), capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
