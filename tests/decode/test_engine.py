"""An engine as whoever holds it sees it: what it refuses, what leaves, what fails alone, what a prompt costs."""

import pytest
import torch

from decode.test_batching import alone, ids
from glassformer.base.errors import BusyError, ConfigError, DataError, RowError
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode import engine as rows
from glassformer.decode.choose import chooser, greedy
from glassformer.decode.engine import Engine
from glassformer.decode.filters import logit_bias
from glassformer.decode.requests import Limits, Request
from glassformer.decode.settings import Sampling
from specimens import VOCAB, close, model


def engine_of(limits: Limits | None = None, shape: str = "decoder", **settings) -> Engine:
    return Engine(model(shape, positions="rotary", **settings), limits)


def run_dry(engine: Engine) -> list:
    return [each for _ in range(200) if engine.busy for each in engine.step()]


def test_a_prompt_is_read_once_for_all_its_texts():
    engine, read = engine_of(), []
    engine.model.decoder.embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    never_ends = logit_bias({EOS: -float("inf")})
    choose = chooser(Sampling(), [never_ends])
    ticket = engine.submit(Request(ids(6), max_new_tokens=3, n=4, choose=choose))
    assert len({each.text for each in engine.step()}) == 4
    run_dry(engine)
    assert read == [6, 4, 4]
    assert ticket.over


@pytest.mark.parametrize("together", [1, 2, 256])
def test_a_prompt_is_scored_with_the_first_token_of_each_text(together, monkeypatch):
    """Beside prompts of other lengths, however many places are scored at a time; and only once."""
    monkeypatch.setattr(rows, "SCORED", together)
    engine = engine_of()
    prompts = [ids(7), ids(1), ids(4)]
    asked = [Request(each, max_new_tokens=3, n=2, logprobs=2, scored=True) for each in prompts]
    tickets = [engine.submit(each) for each in (*asked, Request(ids(5), max_new_tokens=3, logprobs=2))]
    told = run_dry(engine)
    for ticket, prompt in zip(tickets, [*prompts, None], strict=True):
        of_prompts = [each.prompt for each in told if each.ticket is ticket and each.prompt is not None]
        if prompt is None:
            assert of_prompts == []
            continue
        assert len(of_prompts) == 2
        log_p = engine.model(torch.tensor([prompt]))[0, :-1].log_softmax(-1)
        own = log_p[range(len(prompt) - 1), prompt[1:]]
        for of_prompt in of_prompts:
            close(torch.tensor([each.log_probability for each in of_prompt], dtype=own.dtype), own)
            assert [[id for id, _ in each.top] for each in of_prompt] == log_p.topk(2).indices.tolist()


@pytest.mark.parametrize(
    ("settings", "request_", "says"),
    [
        ({"prefix": True}, {"logprobs": 1}, "got a prefix model, which reads it both ways"),
        ({"max_context": 4}, {"logprobs": 1}, "got one that is longer than the context"),
        ({}, {}, "got logprobs=None"),
    ],
    ids=["prefix", "context", "no logprobs"],
)
def test_what_cannot_be_scored_is_refused(settings, request_, says):
    with pytest.raises(ConfigError, match=says):
        Engine(model("decoder"), **settings).submit(Request(ids(6), max_new_tokens=1, scored=True, **request_))


def test_a_cancelled_request_leaves_and_the_next_one_enters():
    engine = engine_of(Limits(rows=2), head_bias=True)
    engine.model.head.bias.data[EOS] = -1e3
    first, second = (engine.submit(Request(ids(3), max_new_tokens=20, n=2)) for _ in range(2))
    third = engine.submit(Request(ids(3), max_new_tokens=1))
    assert {each.ticket for each in engine.step()} == {first}
    engine.cancel(first)
    engine.cancel(third)  # while it waits
    assert {each.ticket for each in engine.step()} == {second}
    engine.cancel(second, 0)  # one text of two
    assert [(each.ticket, each.text) for each in engine.step()] == [(second, 1)]
    engine.cancel(second)
    assert engine.step() == []
    assert not engine.busy


def test_room_is_rows_times_the_longest():
    engine = engine_of(Limits(rows=4, tokens=40), head_bias=True)
    engine.model.head.bias.data[EOS] = -1e3
    small = [engine.submit(Request(ids(3), max_new_tokens=6)) for _ in range(2)]  # 8 tokens each
    large = engine.submit(Request(ids(3), max_new_tokens=12))  # 14: three times 14 do not fit
    late = engine.submit(Request(ids(3), max_new_tokens=1))
    order = [{each.ticket for each in engine.step()} for _ in range(7)]
    assert order[:6] == [{*small}] * 6
    assert order[6] == {large, late}  # nobody overtakes


@pytest.mark.parametrize(
    ("request_", "kind", "says"),
    [
        (Request([4], n=5, max_new_tokens=2), ConfigError, "4 texts"),
        (Request([4], n=4, max_new_tokens=11), ConfigError, "room for 40"),
        (Request([], n=1), DataError, "at least one token"),
        (Request([VOCAB]), DataError, "from 0 to"),
        (Request([4], max_new_tokens=0), ConfigError, "max_new_tokens"),
        (Request([4], max_new_tokens=10**12), DataError, "max_len=12"),
        (Request([4] * 12, max_new_tokens=2), DataError, "13 tokens together"),
        (Request([4], [5]), ConfigError, "source"),
        (Request([4], logprobs=-1), ConfigError, "logprobs"),
        (Request([4], seed=2**64), ConfigError, "seed must be at most"),
        (Request([4], seed=10**5000), ConfigError, "seed must be at most .* got a number of 16610 bits"),
        (Request([4], first=2**64 - 1, n=2), ConfigError, "first . n - 1 must be at most"),
    ],
)
def test_what_cannot_be_written_is_refused(request_, kind, says):
    engine = engine_of(Limits(rows=4, tokens=40), max_len=12)
    with pytest.raises(kind, match=says):
        engine.submit(request_)
    assert not engine.busy


def test_no_more_wait_than_may():
    engine = engine_of(Limits(waiting=2))
    for _ in range(2):
        engine.submit(Request([4]))
    with pytest.raises(BusyError, match="2 requests are waiting"):
        engine.submit(Request([4]))


def test_a_source_that_is_too_long_is_refused():
    engine = engine_of(shape="encoder-decoder", max_len=8)
    engine.submit(Request(source=[5] * 7, max_new_tokens=8))
    with pytest.raises(DataError, match="at most max_len=8"):
        engine.submit(Request(source=[5] * 8, max_new_tokens=8))
    with pytest.raises(ConfigError, match=r"needs a source, .*; got no source"):
        engine.submit(Request([4]))


def test_settings_that_overflow_end_their_own_text_alone():
    """Chosen with a temperature, which makes infinity no number, and with probabilities, which are told of all rows."""
    engine = engine_of()
    engine.model.float()
    broken = chooser(Sampling(repetition_penalty=1e-40, temperature=0.7, seed=3))
    wrong = engine.submit(Request(ids(9), max_new_tokens=6, choose=broken, logprobs=0))
    right = Request([8, 9], max_new_tokens=6, logprobs=2)
    ticket, got = engine.submit(right), run_dry(engine)
    assert [type(each.error) for each in got if each.ticket is wrong] == [RowError]
    assert "repetition_penalty=1e-40" in str(next(each.error for each in got if each.ticket is wrong))
    assert [each.id for each in got if each.ticket is ticket] == alone(engine.model, right, 0, greedy)


@pytest.mark.parametrize("choice", [[VOCAB], [-1], [3, 3], []], ids=["beyond", "below", "two", "none"])
def test_a_choice_that_is_none_ends_its_own_text_alone(choice):
    engine, right = engine_of(), Request([8, 9], max_new_tokens=3, logprobs=0)
    bad = Request([4], choose=lambda logits, context: torch.tensor(choice), logprobs=0)
    tickets, got = [engine.submit(each) for each in (bad, right)], run_dry(engine)
    assert [type(each.error) for each in got if each.ticket is tickets[0]] == [DataError]
    assert [each.id for each in got if each.ticket is tickets[1]] == alone(engine.model, right, 0, greedy)


def test_random_numbers_have_keys_of_64_bits():
    engine, last = engine_of(), 2**64 - 1
    engine.submit(Request([4], max_new_tokens=1, n=2, seed=last, first=last - 1, choose=chooser(Sampling())))
    assert [each.error for each in engine.step()] == [None, None]


@pytest.mark.parametrize("rule", ["softmax", "linear"])
def test_after_a_step_that_failed_the_next_request_is_served(rule, monkeypatch):
    engine, lost = engine_of(attention_rule=rule, head_bias=True), [True]
    engine.model.head.bias.data[EOS] = -1e3
    request = Request(ids(3), max_new_tokens=5)
    expected = alone(engine.model, request, 0, greedy)
    head = engine.model.head.forward

    def breaks(hidden):
        if lost and len(engine.rows) == 2:
            lost.clear()
            raise MemoryError("no more")
        return head(hidden)

    for _ in range(2):
        engine.submit(request)
    monkeypatch.setattr(engine.model.head, "forward", breaks)
    engine.step()
    late = engine.submit(request)
    assert [type(each.error) for each in engine.step()] == [MemoryError] * 3
    assert late.over
    assert not engine.busy
    engine.submit(request)
    assert [each.id for each in run_dry(engine)] == expected


@pytest.mark.parametrize("rule", ["softmax", "linear"])
def test_numbers_that_are_none_stay_in_their_row(rule):
    """A row that overflowed leaves nothing behind that would reach others through a weight of 0."""
    engine = engine_of(attention_rule=rule, tie_embeddings=False)
    engine.model.decoder.embedding.weight.data[7] = float("inf")
    short, long = Request([8, 9], max_new_tokens=5), Request([8, 9] * 5, max_new_tokens=5)
    expected = [alone(engine.model, request, 0, greedy) for request in (short, long)]
    assert not {7} & {id for each in expected for id in each}
    engine.submit(Request([7] * 14, max_new_tokens=2, n=2))
    run_dry(engine)
    tickets = [engine.submit(request) for request in (short, long)]
    written = run_dry(engine)
    assert [[each.id for each in written if each.ticket is ticket] for ticket in tickets] == expected


def test_probabilities_are_the_models_own():
    engine = engine_of()
    choose = chooser(Sampling(temperature=0.0), [logit_bias({5: 100.0})])
    prompt = ids(4)
    engine.submit(Request(prompt, max_new_tokens=1, choose=choose, logprobs=3))
    engine.submit(Request(prompt, max_new_tokens=1, choose=choose))
    told, silent = engine.step()
    assert silent.likely is None
    log_p = engine.model(torch.tensor([prompt]))[0, -1].log_softmax(-1)
    assert told.id == 5
    close(torch.tensor(told.likely.log_probability, dtype=torch.float64), log_p[5])
    assert [id for id, _ in told.likely.top] == log_p.topk(3).indices.tolist()


@pytest.mark.parametrize("value", [0, -1, True])
def test_limits_are_counts(value):
    with pytest.raises(ConfigError, match="rows must be"):
        Limits(rows=value)
