"""OpenAI's own client, with a server in a process of its own."""

import pytest

from serve.wire import KEY


@pytest.fixture(scope="module")
def client(server):
    openai = pytest.importorskip("openai", reason="the official openai client is not installed (extra dev)")
    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as made:
        yield made


def test_openai_completions(client):
    options = {"model": "tiny", "prompt": "abc", "max_tokens": 9, "seed": 3, "n": 2, "temperature": 0.8}
    whole = client.completions.create(**options, logprobs=2)
    assert whole.object == "text_completion"
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.tokens) == len(whole.choices[0].logprobs.top_logprobs)
    texts = ["", ""]
    for piece in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        for choice in piece.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert piece.usage == whole.usage
    own = client.completions.create(**options, extra_body={"top_k": 1}, stop=["q"], user="me")
    assert len({choice.text for choice in own.choices}) == 1


NEUTRAL = {"best_of": 1, "suffix": None, "echo": False, "logit_bias": {}, "stop": None, "logprobs": None, "user": "me"}


def test_openai_fields_that_ask_for_nothing(client):
    options = {"model": "tiny", "prompt": "abc", "max_tokens": 9, "seed": 3}
    more = {"frequency_penalty": 0, "presence_penalty": 0, "temperature": 1, "top_p": 1, "n": 1, "stream": False}
    [plain] = client.completions.create(**options).choices
    assert client.completions.create(**options, **NEUTRAL, **more).choices == [plain]


def test_openai_fields_that_change_the_text(client):
    options = {"model": "tiny", "prompt": "abc", "max_tokens": 9, "temperature": 0}
    [plain] = client.completions.create(**options).choices
    for field in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"logit_bias": {"2": 100}}, {"echo": True}):
        assert client.completions.create(**options, **field).choices[0].text != plain.text, field
    assert client.completions.create(**options, stop=plain.text[3]).choices[0].text in plain.text[:3]
    drawn = {**options, "temperature": 2, "max_tokens": 20}
    assert client.completions.create(**drawn, seed=1).choices == client.completions.create(**drawn, seed=1).choices
    assert client.completions.create(**drawn, seed=1).choices != client.completions.create(**drawn, seed=2).choices
    assert client.completions.create(**drawn, top_p=1e-9).choices[0].text.startswith(plain.text)


def test_openai_warnings_and_a_prompt_that_is_none(client):
    lacking = {"model": "tiny", "prompt": "Z", "max_tokens": 3}
    [result] = client.completions.create(**lacking).warnings
    assert result == "prompt 1: the vocabulary lacks a part of it, 'Z' (U+005A); the model read <unk> in its place."
    first, *_ = client.completions.create(**lacking, stream=True)
    assert first.warnings == [result]
    begun = [client.completions.create(model="tiny", prompt=prompt, seed=1) for prompt in (None, "")]
    assert begun[0].choices == begun[1].choices


def test_openai_grammars(client):
    pytest.importorskip("llguidance", reason="llguidance is not installed")
    import openai

    options = {"model": "tiny", "prompt": "abc", "max_tokens": 9, "seed": 3}
    made = client.completions.create(**options, extra_body={"structured_outputs": {"regex": "[ab]{2}d"}})
    assert made.choices[0].text in {"aad", "abd", "bad", "bbd"}
    format_of = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "objct"}}}
    with pytest.raises(openai.BadRequestError, match="Invalid type: objct") as wrong:
        client.completions.create(**options, extra_body={"response_format": format_of})
    assert wrong.value.param == "response_format"


def test_openai_models(client):
    assert [each.id for each in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "glassformer"


def test_openai_errors(client, server):
    import openai

    with pytest.raises(openai.BadRequestError, match="n must be a whole number") as wrong:
        client.completions.create(model="tiny", prompt="a", n=1000)
    assert wrong.value.param == "n"
    with pytest.raises(openai.NotFoundError, match="This server has no model 'other'"):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="tiny", messages=[])
    other = openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="needs its API key"), other:
        other.models.list()


def test_a_stream_that_is_broken_off_leaves_the_server_well(client):
    options = {"model": "tiny", "prompt": "ab", "max_tokens": 400, "extra_body": {"min_new_tokens": 400}}
    for _ in range(3):
        with client.completions.create(**options, stream=True) as stream:
            assert next(iter(stream)).choices
    assert client.completions.create(model="tiny", prompt="a").choices
