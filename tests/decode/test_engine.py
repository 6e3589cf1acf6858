"""An engine as whoever holds it sees it: what it refuses, what leaves, what fails alone, what a prompt costs."""

import pytest
import torch

from decode.test_batching import Recorded, alone, ids, served
from glassformer.base.errors import BusyError, ConfigError, DataError, RowError
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode import engine as rows
from glassformer.decode.choose import chooser, greedy
from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.filters import logit_bias
from glassformer.decode.requests import Limits, Request
from glassformer.decode.settings import Sampling
from glassformer.nn.stack import Stack
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
    request = [Request(each, max_new_tokens=3, n=2, logprobs=2, scored=True) for each in prompts]
    tickets = [engine.submit(each) for each in (*request, Request(ids(5), max_new_tokens=3, logprobs=2))]
    result = run_dry(engine)
    for ticket, prompt in zip(tickets, [*prompts, None], strict=True):
        of_prompts = [each.prompt for each in result if each.ticket is ticket and each.prompt is not None]
        if prompt is None:
            assert of_prompts == []
            continue
        assert len(of_prompts) == 2
        log_p = engine.model(torch.tensor([prompt]))[0, :-1].log_softmax(-1)
        own = log_p[range(len(prompt) - 1), prompt[1:]]
        for of_prompt in of_prompts:
            close(torch.tensor([each.log_probability for each in of_prompt], dtype=own.dtype), own)
            assert [[id for id, _ in each.top] for each in of_prompt] == log_p.topk(2).indices.tolist()


@pytest.mark.parametrize(("settings", "request_", "message"), [
    ({"prefix": True}, {"logprobs": 1}, "got a prefix model, which reads it both ways"),
    ({"max_context": 4}, {"logprobs": 1}, "got one that is longer than the context"),
    ({}, {}, "got logprobs=None"),
], ids=["prefix", "context", "no logprobs"])  # fmt: skip
def test_what_cannot_be_scored_is_refused(settings, request_, message):
    with pytest.raises(ConfigError, match=message):
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


@pytest.mark.parametrize(("request_", "kind", "message"), [
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
])  # fmt: skip
def test_what_cannot_be_written_is_refused(request_, kind, message):
    engine = engine_of(Limits(rows=4, tokens=40), max_len=12)
    with pytest.raises(kind, match=message):
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
    result, silent = engine.step()
    assert silent.likely is None
    log_p = engine.model(torch.tensor([prompt]))[0, -1].log_softmax(-1)
    assert result.id == 5
    close(torch.tensor(result.likely.log_probability, dtype=torch.float64), log_p[5])
    assert [id for id, _ in result.likely.top] == log_p.topk(3).indices.tolist()


@pytest.mark.parametrize("value", [0, -1, True])
def test_limits_are_counts(value):
    with pytest.raises(ConfigError, match="rows must be"):
        Limits(rows=value)


# --- What an engine has written before anybody asks: steps of one row and of several, whatever room there is


def steps_of(made, engine):
    """How many rows each step has that would be compiled."""
    seen = []

    def run(x, context, cache):
        if x.shape[1] == 1 and cache.length > 1:
            seen.append(len(x))
        return Stack.run(made.reader, x, context, cache)

    made.reader.run = run
    warm_up(engine)
    return seen


def texts(engine):
    for n, seed in ((3, 1), (1, 2)):
        given = {"prompt": [5] * n} if engine.model.encoder is None else {"source": [5] * n}
        engine.submit(Request(max_new_tokens=5, seed=seed, **given))
    written = []
    while engine.busy:
        written += [(each.text, each.id, each.end) for each in engine.step()]
    return written


@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
def test_steps_of_one_row_and_of_several(shape):
    made = model(shape)
    engine = Engine(made, Limits(rows=8))
    assert steps_of(made, engine) == [1, 3]
    assert not engine.busy
    assert texts(engine) == texts(Engine(made, Limits(rows=8))), "nothing of it stays"


@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize(("settings", "limits", "rows"), [
    ({}, {"rows": 1}, [1]),
    ({}, {"rows": 2}, [1, 2]),
    ({}, {"rows": 8, "waiting": 1}, [1]),
    ({}, {"rows": 8, "waiting": 2}, [1, 2]),
    ({}, {"tokens": 1}, []),
    ({}, {"tokens": 3}, [1]),
    ({"max_len": 2}, {}, [1, 3]),
    ({"max_len": 1}, {}, []),
])  # fmt: skip
def test_where_there_is_less_room(shape, settings, limits, rows):
    made = model(shape, **settings)
    assert steps_of(made, Engine(made, Limits(**limits))) == rows


def test_what_goes_wrong_is_not_swallowed():
    made = model("decoder")
    engine = Engine(made)

    def run(x, context, cache):
        raise RuntimeError("no compiler")

    made.reader.run = run
    with pytest.raises(RuntimeError, match="no compiler"):
        warm_up(engine)


def test_a_room_has_one_row_and_one_column_more_than_are_needed():
    """One row in a room of one, and a room that is read whole, would be further kinds of step."""
    engine = Engine(model("decoder", max_len=90))
    engine.submit(Request([5] * 60, max_new_tokens=5))
    with torch.no_grad():
        engine.step()
    held = engine._slots.rooms[0]._held[0]
    assert (len(held), held.shape[2]) == (2, 65)


# --- Who comes into an engine and when: by rows, by room, by what is read at once, and by who still waits


ENDLESS = -1  # of `eos`: no text ends before its limit


def endless(limits: Limits, shape: str = "decoder", **settings) -> Engine:
    return Engine(model(shape, positions="rotary", **settings), limits, eos=ENDLESS)


@pytest.mark.parametrize("active", [0, 1], ids=["idle", "active"])
@pytest.mark.parametrize("rule", ["softmax", "linear"])
def test_prompts_read_one_after_another_in_a_step_keep_their_keys(rule, active):
    """Each of them is a group of its own, and the room grows between them."""
    together = Recorded()
    engine = engine_of(Limits(rows=8, reading=40), attention_rule=rule, head_bias=True, max_len=40)
    engine.model.head.bias.data[EOS] = -1e3
    short = [Request(ids(3), max_new_tokens=12, choose=together) for _ in range(active)]
    long = [Request(ids(n), max_new_tokens=4, first=n, choose=together) for n in (30, 33, 31, 36)]
    texts = served(engine, short + long, [0] * active + [2] * len(long))
    for request in short + long:
        by_itself = Recorded()
        assert texts[request.first] == alone(engine.model, request, 0, by_itself)
        close(torch.stack(together.seen[request.first]), torch.stack(by_itself.seen[request.first]), request.first)


def test_rows_that_are_read_anew_keep_their_places():
    """All rows have left their slots to be read from further on; nobody else comes in meanwhile."""
    made = model("decoder", positions="rotary", max_len=9)
    engine = Engine(made, Limits(rows=4, tokens=36), eos=ENDLESS, max_context=9, drop=3)
    first = engine.submit(Request(ids(7), max_new_tokens=12, n=4))
    engine.step()
    second = engine.submit(Request(ids(7), max_new_tokens=12, n=4))
    while not first.over:
        assert {each.ticket for each in engine.step()} == {first}
        assert len(engine.rows) == 4
    assert {each.ticket for each in engine.step()} == {second}


def test_those_who_left_the_queue_hold_no_place_in_it():
    engine = endless(Limits(rows=1, waiting=2))
    engine.submit(Request(ids(3), max_new_tokens=9))
    engine.step()
    engine.submit(Request(ids(3)))
    engine.cancel(engine.submit(Request(ids(3))))
    engine.submit(Request(ids(3)))
    with pytest.raises(BusyError, match="2 requests are waiting"):
        engine.submit(Request(ids(3)))
    assert len(engine.waiting) == 2


def test_those_who_left_the_queue_keep_nobody_out():
    """A wide one that is wanted no more does not count where room is counted, wherever it stands."""
    engine = endless(Limits(rows=4, tokens=40), max_len=40)
    active = engine.submit(Request(ids(3), max_new_tokens=6))  # 8 tokens
    engine.step()
    wide = engine.submit(Request(ids(3), max_new_tokens=30))  # 32: two times 32 do not fit
    narrow = engine.submit(Request(ids(3), max_new_tokens=6))
    engine.cancel(wide)
    assert {each.ticket for each in engine.step()} == {active, narrow}
    last = [engine.submit(Request(ids(3), max_new_tokens=30)) for _ in range(2)]
    engine.cancel(last[1])  # behind one that does not fit
    engine.step()
    assert [*engine.waiting.tickets] == last[:1]


def reads(engine: Engine) -> list[list[int]]:
    """The shapes that the encoder reads."""
    seen: list[list[int]] = []
    engine.model.encoder.embedding.register_forward_hook(lambda _, given, __: seen.append([*given[0].shape]))
    return seen


def test_sources_count_where_prompts_are_read():
    engine = endless(Limits(rows=8, reading=20), "encoder-decoder")
    seen = reads(engine)
    for n in (7, 9, 3, 19, 2):
        engine.submit(Request(source=ids(n), max_new_tokens=3))
    engine.step()
    assert seen == [[2, 10], [1, 4], [1, 20], [1, 3]]


def test_memories_take_room_beside_texts():
    engine = endless(Limits(rows=8, tokens=40), "encoder-decoder", max_len=40)
    first = [engine.submit(Request(source=ids(n), max_new_tokens=4)) for n in (5, 3)]  # 4 tokens, 6 of memory
    second = engine.submit(Request(source=ids(9), max_new_tokens=4))  # three times 14 do not fit
    assert {each.ticket for each in engine.step()} == {*first}
    while not first[0].over:
        engine.step()
    assert {each.ticket for each in engine.step()} == {second}
    with pytest.raises(ConfigError, match="room for 40 tokens; got n=1 texts of 41"):
        engine.submit(Request(source=ids(36), max_new_tokens=4))
    run_dry(engine)


# --- Whatever is raised in a step ends the texts that it concerns, and the engine goes on


class Panic(BaseException):
    """As a library in another language raises it."""


def never_ending(limits: Limits | None = None, **settings) -> Engine:
    engine = engine_of(limits, head_bias=True, **settings)
    engine.model.head.bias.data[EOS] = -1e3
    return engine


def raises(kind: type[BaseException]):
    def broken(*_):
        raise kind("no more")

    return broken


def test_a_panic_of_a_choice_ends_its_own_text_alone():
    engine = never_ending()

    def choose(logits, context):
        if 1 in context.numbers:
            raise Panic("at the disco")
        return greedy(logits, context)

    engine.submit(Request(ids(3), max_new_tokens=4, n=3, choose=choose))
    got = engine.step()
    assert [each.text for each in got if each.error is None] == [0, 2]
    [error] = [each.error for each in got if each.error]
    assert (type(error), str(error), type(error.__cause__)) == (RuntimeError, "Panic: at the disco", Panic)
    assert {each.text for each in run_dry(engine)} == {0, 2}


@pytest.mark.parametrize(("kind", "message"), [(Panic, "Panic: no more"), (RuntimeError, "no more")])
def test_a_failure_while_a_request_is_read_ends_it_alone(kind, message, monkeypatch):
    engine, bad = engine_of(), [7, 7, 7]
    read = engine._read_together
    monkeypatch.setattr(
        engine, "_read_together", lambda group: (raises(kind) if any(p.ids == bad for p in group) else read)(group)
    )
    wrong, right = engine.submit(Request(bad)), engine.submit(Request([8, 9], max_new_tokens=3))
    got = run_dry(engine)
    assert [str(each.error) for each in got if each.ticket is wrong] == [message]
    assert all(each.error is None for each in got if each.ticket is right)


@pytest.mark.parametrize("kind", [MemoryError, Panic])
@pytest.mark.parametrize("context", [None, 6], ids=["ended", "read anew"])
def test_a_row_that_cannot_leave_ends_those_in_hand(kind, context, monkeypatch):
    """And nobody else: neither who waits, nor who is told already that their text has ended."""
    engine = never_ending(Limits(rows=3))
    if context is not None:
        engine.max_context, engine.drop = context, 2
    request = Request(ids(3), max_new_tokens=8)
    brief, long, left = (engine.submit(each) for each in (Request(ids(3), max_new_tokens=1), request, request))
    engine.step()
    if context is not None:
        engine.submit(Request(ids(3), max_new_tokens=8))  # in the place of `brief`, which leaves now
        engine.step()
        engine.step()
    waits = engine.submit(request)
    engine.cancel(left)
    monkeypatch.setattr(engine._slots, "leave", raises(kind))
    failed = engine.step()
    assert {each.error and type(each.error.__cause__ or each.error) for each in failed} == {kind}
    assert long in [each.ticket for each in failed]
    assert not {brief, left, waits} & {each.ticket for each in failed}
    assert long.over
    other = Engine(engine.model, max_context=engine.max_context, drop=engine.drop)
    other.submit(request)
    assert [each.id for each in run_dry(engine) if each.ticket is waits] == [each.id for each in run_dry(other)]
    assert not engine.busy


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["choice", "leave", "read"])
def test_who_ends_the_program_is_obeyed(kind, where, monkeypatch):
    """The step is left; what was in hand can be ended then, also what was just admitted."""
    engine = never_ending()
    first = engine.submit(Request(ids(3), max_new_tokens=2, choose=greedy))
    engine.step()
    first.ended.add(0) if where == "leave" else None
    second = engine.submit(Request(ids(3), max_new_tokens=3, n=2, choose=raises(kind) if where == "choice" else greedy))
    with monkeypatch.context() as patch:
        if where == "leave":
            patch.setattr(engine._slots, "leave", raises(kind))
        elif where == "read":
            patch.setattr(engine, "_read_together", raises(kind))
        with pytest.raises(kind):
            engine.step()
    result = engine.fail(RuntimeError("over"))
    expected = {"leave": []}.get(where, [(first, 0), (second, 0), (second, 1)])
    assert [(each.ticket, each.text) for each in result] == expected
    assert {str(each.error) for each in result} <= {"over"}
    if where == "leave":
        assert len(run_dry(engine)) == 6  # it was not admitted yet
    assert not engine.busy
    request = Request(ids(4), max_new_tokens=5)
    engine.submit(request)
    assert [each.id for each in run_dry(engine)] == alone(engine.model, request, 0, greedy)
