"""`POST /v1/completions`: what is asked for is what comes, alone or beside others, whole or in pieces."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from glassformer.base.errors import DataError
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.decode.constraints import NO_CONSTRAINTS
from glassformer.train.finished.writing import Writer
from glassformer.train.recipe import override
from serve.wire import PATIENCE, Wire, writer_of

PATH = "/v1/completions"


def written(writer: Writer, prompts: list[str], n=1, stops=(), constraints=NO_CONSTRAINTS, **decode) -> list[str]:
    """What `glassformer generate` writes, text by text."""
    changes = {"temperature": 0.0, "max_new_tokens": 12} | decode
    before = writer.recipe
    writer.recipe = override(before, {f"decode.{name}": value for name, value in changes.items()})
    try:
        texts = [""] * len(prompts) * n
        for piece in writer.write(prompts, n, list(stops), constraints=constraints):
            texts[piece.row] += piece.text
        return texts
    finally:
        writer.recipe = before


def texts(heard) -> list[str]:
    assert heard.status == 200, heard.parts
    assert [choice["index"] for choice in heard.json["choices"]] == [*range(len(heard.json["choices"]))]
    return [choice["text"] for choice in heard.json["choices"]]


def test_a_greedy_completion(wire, writer):
    heard = wire.ask(PATH, {"model": "tiny", "prompt": "abc", "temperature": 0, "max_tokens": 12})
    assert texts(heard) == written(writer, ["abc"])
    response = heard.json
    assert (response["object"], response["model"]) == ("text_completion", "tiny")
    assert response["id"].startswith("cmpl-")
    assert response["usage"]["prompt_tokens"] == 4
    assert response["usage"]["total_tokens"] == 4 + response["usage"]["completion_tokens"]
    assert response["choices"][0]["logprobs"] is None


def test_drawn_texts_are_those_of_generate(wire, writer):
    body = {"prompt": ["ab", "cd"], "n": 3, "seed": 5, "temperature": 0.8, "top_p": 0.9, "max_tokens": 12}
    expected = written(writer, ["ab", "cd"], 3, seed=5, temperature=0.8, top_p=0.9)
    assert texts(wire.ask(PATH, body)) == expected
    assert len({*expected}) > 3


def test_without_a_seed_each_time_others(wire):
    drawn = {texts(wire.ask(PATH, {"prompt": "ab", "max_tokens": 12}))[0] for _ in range(4)}
    assert len(drawn) > 1


def test_clients_beside_one_another_get_what_they_get_alone(wire, writer):
    bodies = [
        {"prompt": "abcd"[: 1 + i % 4], "seed": i, "temperature": 0.5 * (i % 3), "max_tokens": 4 + i, "n": 1 + i % 2}
        for i in range(16)
    ]
    alone = [texts(wire.ask(PATH, body)) for body in bodies]
    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(lambda body: texts(wire.ask(PATH, body)), bodies))
    assert together == alone


@pytest.fixture
def at_leisure(wire, monkeypatch):
    """The engine makes a step once the event loop has sent what the step before it told: no two are joined."""
    step = wire.engine.step

    async def sent():
        for _ in range(20):  # turns of the loop, more than a piece needs on its way from the engine to the client
            await asyncio.sleep(0)

    def waits():
        with suppress(TimeoutError):  # raised here, it would end the thread of the engine
            asyncio.run_coroutine_threadsafe(sent(), wire.loop).result(PATIENCE)
        return step()

    monkeypatch.setattr(wire.engine, "step", waits)


def test_a_stream_is_the_same_text_in_pieces(wire, at_leisure):
    body = {"prompt": "abc", "temperature": 0.9, "seed": 3, "n": 2, "max_tokens": 20, "stop": ["ba"]}
    whole = wire.ask(PATH, body).json
    heard = wire.ask(PATH, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert heard.headers["content-type"].startswith("text/event-stream")
    *pieces, counts, done = heard.events
    assert done == "DONE"
    assert counts["choices"] == []
    assert [piece["usage"] for piece in pieces] == [None] * len(pieces)
    assert counts["usage"] == whole["usage"]
    assert {piece["id"] for piece in pieces} == {counts["id"]}
    for choice in whole["choices"]:
        own = [each for piece in pieces for each in piece["choices"] if each["index"] == choice["index"]]
        assert "".join(each["text"] for each in own) == choice["text"]
        assert [each["finish_reason"] for each in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]
        assert max(len(each["text"]) for each in own) <= 2, "a character, and one that might have begun the stop text"
    assert len(pieces) > 4


def test_a_stop_text_ends_and_is_left_out(wire, writer):
    [full] = written(writer, ["abc"])
    stop = full[5:7]
    heard = wire.ask(PATH, {"prompt": "abc", "temperature": 0, "max_tokens": 12, "stop": stop})
    assert texts(heard) == written(writer, ["abc"], stops=(stop,)) == [full[: full.index(stop)]]
    assert heard.json["choices"][0]["finish_reason"] == "stop"


def test_texts_that_stop_end_no_others(wire, writer):
    body = {"prompt": "abc", "seed": 2, "n": 6, "max_tokens": 30, "stop": ["a", "b"]}
    expected = written(writer, ["abc"], 6, ("a", "b"), seed=2, temperature=1.0, max_new_tokens=30)
    assert len({len(text) for text in expected}) > 2
    assert texts(wire.ask(PATH, body)) == expected


def test_a_model_has_the_same_weights_whichever_test_asks_first(text_run, writer):
    torch.manual_seed(3)  # what another test may have left
    torch.testing.assert_close(writer_of(text_run).model.state_dict(), writer.model.state_dict(), rtol=0, atol=0)


def test_the_end_of_a_text_and_its_limit(wire, writer):
    never = {"logit_bias": {str(EOS): -100}}
    at_once = {"logit_bias": {str(EOS): 100}}
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 7, **never})
    assert heard.json["usage"]["completion_tokens"] == 7
    assert heard.json["choices"][0]["finish_reason"] == "length"
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 7, **at_once})
    assert texts(heard) == [""]
    assert heard.json["choices"][0]["finish_reason"] == "stop"


def test_special_tokens_are_never_written(wire):
    heard = wire.ask(PATH, {"prompt": "ab", "max_tokens": 30, "logit_bias": {str(BOS): 100, str(EOS): -100}})
    assert len(texts(heard)[0]) == 30


def test_echo(wire, writer):
    body = {"prompt": ["ab", "c"], "temperature": 0, "max_tokens": 12, "echo": True}
    expected = [prompt + text for prompt, text in zip(["ab", "c"], written(writer, ["ab", "c"]), strict=True)]
    assert texts(wire.ask(PATH, body)) == expected
    pieces = [each for event in wire.ask(PATH, {**body, "stream": True}).events[:-1] for each in event["choices"]]
    assert ["".join(each["text"] for each in pieces if each["index"] == i) for i in (0, 1)] == expected


def test_words_go_on_from_their_prompt(words_run):
    """A blank stands between prompt and text, however it is typed; also where the command line writes."""
    writer = writer_of(words_run)
    ids = writer.ids("abc abd", 1)
    body = {"prompt": ["abc abd", "abc abd "], "temperature": 0, "max_tokens": 3, "logit_bias": {str(EOS): -100}}
    with Wire(writer) as wire:
        one, two = texts(wire.ask(PATH, {**body, "echo": True}))
        assert one == two
        assert len(one.split(" ")) == 5
        assert texts(wire.ask(PATH, {**body, "prompt": ids})) == [one.removeprefix("abc abd")]
    begun = written(writer, ["abc abd", "abc abd "], max_new_tokens=3, min_new_tokens=3)
    assert begun[0] == " " + begun[1]


def test_tokens_of_an_echoed_prompt_begin_where_they_are_in_it(words_run):
    body = {"prompt": "abc  zebra abd", "max_tokens": 2, "echo": True, "logprobs": 0, "logit_bias": {str(EOS): -100}}
    with Wire(writer_of(words_run)) as wire:
        [choice] = wire.ask(PATH, body).json["choices"]
    offsets = choice["logprobs"]["text_offset"]
    assert offsets[:4] == [0, 5, 10, 14]
    assert offsets == sorted(offsets)
    assert offsets[-1] < len(choice["text"])


def test_ids_are_read_as_they_are(wire, writer):
    ids = writer.ids("abc", 1, crop=False)
    body = {"temperature": 0, "max_tokens": 12}
    assert texts(wire.ask(PATH, {**body, "prompt": ids})) == written(writer, ["abc"])
    two = [ids, writer.ids("d", 1, crop=False)]
    assert texts(wire.ask(PATH, {**body, "prompt": two})) == written(writer, ["abc", "d"])
    assert wire.ask(PATH, {**body, "prompt": [ids, "d"]}).status == 200


def test_penalties_reach_the_choice(wire, writer):
    body = {"prompt": "ab", "temperature": 0, "max_tokens": 12, "frequency_penalty": 2, "presence_penalty": 1.5}
    assert texts(wire.ask(PATH, body)) == written(writer, ["ab"], frequency_penalty=2.0, presence_penalty=1.5)
    assert texts(wire.ask(PATH, body)) != written(writer, ["ab"])


def test_a_text_goes_on_beyond_the_context(wire, writer):
    never = {"prompt": "abc", "temperature": 0, "max_tokens": 40, "min_new_tokens": 40}
    assert texts(wire.ask(PATH, never)) == written(writer, ["abc"], max_new_tokens=40, min_new_tokens=40)


def test_without_a_prompt_a_text_begins_as_with_generate(wire, writer):
    body = {"temperature": 0, "max_tokens": 12}
    for prompt in ("", [""], None):
        assert texts(wire.ask(PATH, {**body, "prompt": prompt})) == written(writer, [""])
    assert texts(wire.ask(PATH, body)) == written(writer, [""])
    assert texts(wire.ask(PATH, {**body, "prompt": [" ", ""]})) == written(writer, [" ", ""])


def test_what_cannot_begin_a_text_refuses_an_empty_prompt_as_generate_does(writer, monkeypatch):
    monkeypatch.setattr(writer, "documents", False)
    with pytest.raises(DataError) as own:
        written(writer, ["a", ""])
    with Wire(writer) as wire:
        assert wire.ask(PATH, {"prompt": ["a", ""]}).error["message"] == str(own.value)
        assert wire.ask(PATH, {}).error["param"] == "prompt"
        assert wire.ask(PATH, {"prompt": "a"}).status == 200


def test_what_the_vocabulary_lacks_is_told_once(wire, writer):
    prompts = ["ab", "aZ", [7], "\u20ac"]
    result = [writer.unknown(prompts)]
    assert result[0].startswith("prompt 2, 4: ")
    body = {"prompt": prompts, "max_tokens": 3, "logit_bias": {str(EOS): -100}}
    assert wire.ask(PATH, body).json["warnings"] == result
    first, *others, _ = wire.ask(PATH, {**body, "stream": True}).events
    assert first["warnings"] == result
    assert others
    assert not any("warnings" in each for each in others)
    assert "warnings" not in wire.ask(PATH, {**body, "prompt": ["ab", [3]]}).json


def test_a_stop_text_that_never_comes_is_a_warning(wire):
    body = {"prompt": "ab", "max_tokens": 2, "stop": ["b", "\n\n"]}
    assert wire.ask(PATH, body).json["warnings"] == [
        "stop: the vocabulary cannot write '\\n\\n', so no text ends there."
    ]


def test_models(wire):
    assert [each["id"] for each in wire.ask("/v1/models").json["data"]] == ["tiny"]
    assert wire.ask("/v1/models/tiny").json["object"] == "model"
    assert wire.ask("/v1/models/other").error["code"] == "model_not_found"
    assert wire.ask("/health").json == {"status": "ok"}


def test_translations(answerer):
    sources = ["a b c", "c a"]
    expected = written(answerer, sources, max_new_tokens=None)
    with Wire(answerer) as wire:
        heard = wire.ask("/v1/translate", {"text": sources})
        assert [each["text"] for each in heard.json["data"]] == expected
        assert wire.ask("/v1/translate", {"text": sources[1]}).json["data"][0]["text"] == expected[1]
        assert wire.ask(PATH, {"prompt": "a"}).error["code"] == "not_a_completion_model"
        for empty in ("", " ", ["a", ""], None):
            assert wire.ask("/v1/translate", {"text": empty}).error["param"] == "text"
        lacking = wire.ask("/v1/translate", {"text": ["a b", "Z", "a b c d e"]}).json
        unknown, untrained = lacking["warnings"]
        assert unknown == answerer.unknown(["a b", "Z"], "text")
        assert unknown.startswith("text 2: ")
        assert untrained.startswith("text 2, 3: shorter or longer than every source in training (2 to 4 tokens)")
        assert "warnings" not in heard.json
        assert wire.ask("/v1/translate", {"text": []}).error["param"] == "text"
        assert wire.ask("/v1/translate", {"text": "a", "max_tokens": 1}).json["usage"]["completion_tokens"] == 1


# --- Log-probabilities of `POST /v1/completions`: those of what was written, and those of a prompt


def test_logprobs(wire, writer):
    body = {"prompt": "ab", "temperature": 0, "max_tokens": 6, "logprobs": 2, "logit_bias": {str(EOS): -100}}
    whole = wire.ask(PATH, body).json["choices"][0]
    logprobs = whole["logprobs"]
    assert "".join(logprobs["tokens"]) == whole["text"]
    assert logprobs["text_offset"] == [*range(6)]
    for token, own, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert len(top) == (2 if own >= sorted(top.values())[-2] else 3), "the two likeliest, and the one written"
        assert own <= max(top.values()) <= 0
        assert top[token] == own
    streamed = [event["choices"][0]["logprobs"] for event in wire.ask(PATH, {**body, "stream": True}).events[:-1]]
    assert [token for each in streamed for token in each["tokens"]] == logprobs["tokens"]
    none = wire.ask(PATH, {**body, "logprobs": 0}).json["choices"][0]["logprobs"]
    assert none["token_logprobs"] == logprobs["token_logprobs"]
    assert none["top_logprobs"] == [{a: b} for a, b in zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)]
    drawn = wire.ask(PATH, {**body, "temperature": 2, "seed": 1, "max_tokens": 20, "logprobs": 1}).json["choices"][0]
    assert max(len(top) for top in drawn["logprobs"]["top_logprobs"]) == 2


@pytest.mark.parametrize("as_ids", [False, True], ids=["text", "ids"])
def test_a_prompt_is_scored(wire, writer, as_ids):
    """As evaluation programs ask for it: echo, logprobs and no further token; other requests beside it."""
    ids = writer.ids("abcab", 1)
    body = {"prompt": ids if as_ids else "abcab", "max_tokens": 0, "echo": True, "logprobs": 2}
    with ThreadPoolExecutor(3) as pool:
        beside = pool.submit(wire.ask, PATH, {"prompt": "ab", "temperature": 0, "max_tokens": 12})
        heard = wire.ask(PATH, {**body, "n": 2})
        assert texts(beside.result()) == written(writer, ["ab"])
    assert texts(heard) == ["abcab"] * 2
    one, two = heard.json["choices"]
    assert one["logprobs"] == two["logprobs"]
    assert one["finish_reason"] == "length"
    assert heard.json["usage"]["completion_tokens"] == 0
    logprobs, begins = one["logprobs"], int(ids[0] == BOS and not as_ids)
    unknown = 1 - begins  # before the first token of ids, or of a text that does not begin with <bos>, nothing was read
    assert logprobs["tokens"] == writer.tokenizers.target.tokens(ids[begins:])
    assert logprobs["token_logprobs"][:unknown] == logprobs["top_logprobs"][:unknown] == [None] * unknown
    log_p = writer.model(torch.tensor([ids]))[0, :-1].log_softmax(-1).detach()
    expected = log_p[range(len(ids) - 1), ids[1:]].tolist()
    assert logprobs["token_logprobs"][unknown:] == pytest.approx(expected, abs=1e-5)
    best: list[dict[str, float]] = []
    for row in log_p:
        values, places = row.topk(2)
        best.append(dict(zip(writer.tokenizers.target.tokens(places.tolist()), values.tolist(), strict=True)))
    for own, top, likeliest in zip(logprobs["tokens"][unknown:], logprobs["top_logprobs"][unknown:], best, strict=True):
        assert {name: value for name, value in top.items() if name in likeliest} == pytest.approx(likeliest, abs=1e-5)
        assert set(top) == {own, *likeliest}
    assert logprobs["text_offset"][-5:] == [*range(5)]


def test_what_follows_a_scored_prompt_is_scored_behind_it(wire, writer):
    body = {"prompt": "abc", "temperature": 0, "max_tokens": 4, "logprobs": 1, "logit_bias": {str(EOS): -100}}
    alone = wire.ask(PATH, body).json["choices"][0]["logprobs"]
    whole = wire.ask(PATH, {**body, "echo": True}).json["choices"][0]
    logprobs = whole["logprobs"]
    assert "".join(logprobs["tokens"]) == whole["text"]
    assert logprobs["text_offset"] == [*range(7)]
    assert logprobs["tokens"][3:] == alone["tokens"]
    assert logprobs["token_logprobs"][3:] == pytest.approx(alone["token_logprobs"], abs=1e-5)
    streamed = [event["choices"][0] for event in wire.ask(PATH, {**body, "echo": True, "stream": True}).events[:-1]]
    assert [token for each in streamed for token in each["logprobs"]["tokens"]] == logprobs["tokens"]
    assert "".join(each["text"] for each in streamed) == whole["text"]


def test_nothing_is_written_if_nothing_is_wanted(wire):
    heard = wire.ask(PATH, {"prompt": ["abc", "d"], "max_tokens": 0, "echo": True})
    assert texts(heard) == ["abc", "d"]
    assert [each["logprobs"] for each in heard.json["choices"]] == [None, None]
