"""Log-probabilities of `POST /v1/completions`: those of what was written, and those of a prompt."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.train.finished.writing import Writer
from serve.test_completions import PATH, texts, written


def test_logprobs(wire, writer):
    body = {"prompt": "ab", "temperature": 0, "max_tokens": 6, "logprobs": 2, "logit_bias": {str(EOS): -100}}
    whole = wire.ask(PATH, body).json["choices"][0]
    told = whole["logprobs"]
    assert "".join(told["tokens"]) == whole["text"]
    assert told["text_offset"] == [*range(6)]
    for token, own, top in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert len(top) == (2 if own >= sorted(top.values())[-2] else 3), "the two likeliest, and the one written"
        assert own <= max(top.values()) <= 0
        assert top[token] == own
    streamed = [event["choices"][0]["logprobs"] for event in wire.ask(PATH, {**body, "stream": True}).events[:-1]]
    assert [token for each in streamed for token in each["tokens"]] == told["tokens"]
    none = wire.ask(PATH, {**body, "logprobs": 0}).json["choices"][0]["logprobs"]
    assert none["token_logprobs"] == told["token_logprobs"]
    assert none["top_logprobs"] == [{a: b} for a, b in zip(told["tokens"], told["token_logprobs"], strict=True)]
    drawn = wire.ask(PATH, {**body, "temperature": 2, "seed": 1, "max_tokens": 20, "logprobs": 1}).json["choices"][0]
    assert max(len(top) for top in drawn["logprobs"]["top_logprobs"]) == 2


def own_log_p(writer: Writer, ids: list[int]) -> torch.Tensor:
    """The log-probabilities that the model gives to each token after the first, [T - 1, V]."""
    with torch.no_grad():
        return writer.model(torch.tensor([ids]))[0, :-1].log_softmax(-1)


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
    told, begins = one["logprobs"], int(ids[0] == BOS and not as_ids)
    unknown = 1 - begins  # before the first token of ids, or of a text that does not begin with <bos>, nothing was read
    assert told["tokens"] == writer.tokenizers.target.tokens(ids[begins:])
    assert told["token_logprobs"][:unknown] == told["top_logprobs"][:unknown] == [None] * unknown
    log_p = own_log_p(writer, ids)
    expected = log_p[range(len(ids) - 1), ids[1:]].tolist()
    assert told["token_logprobs"][unknown:] == pytest.approx(expected, abs=1e-5)
    best: list[dict[str, float]] = []
    for row in log_p:
        values, places = row.topk(2)
        best.append(dict(zip(writer.tokenizers.target.tokens(places.tolist()), values.tolist(), strict=True)))
    for own, top, likeliest in zip(told["tokens"][unknown:], told["top_logprobs"][unknown:], best, strict=True):
        assert {name: value for name, value in top.items() if name in likeliest} == pytest.approx(likeliest, abs=1e-5)
        assert set(top) == {own, *likeliest}
    assert told["text_offset"][-5:] == [*range(5)]


def test_what_follows_a_scored_prompt_is_scored_behind_it(wire, writer):
    body = {"prompt": "abc", "temperature": 0, "max_tokens": 4, "logprobs": 1, "logit_bias": {str(EOS): -100}}
    alone = wire.ask(PATH, body).json["choices"][0]["logprobs"]
    whole = wire.ask(PATH, {**body, "echo": True}).json["choices"][0]
    told = whole["logprobs"]
    assert "".join(told["tokens"]) == whole["text"]
    assert told["text_offset"] == [*range(7)]
    assert told["tokens"][3:] == alone["tokens"]
    assert told["token_logprobs"][3:] == pytest.approx(alone["token_logprobs"], abs=1e-5)
    streamed = [event["choices"][0] for event in wire.ask(PATH, {**body, "echo": True, "stream": True}).events[:-1]]
    assert [token for each in streamed for token in each["logprobs"]["tokens"]] == told["tokens"]
    assert "".join(each["text"] for each in streamed) == whole["text"]


def test_nothing_is_written_if_nothing_is_wanted(wire):
    heard = wire.ask(PATH, {"prompt": ["abc", "d"], "max_tokens": 0, "echo": True})
    assert texts(heard) == ["abc", "d"]
    assert [each["logprobs"] for each in heard.json["choices"]] == [None, None]
