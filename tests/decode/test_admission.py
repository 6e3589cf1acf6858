"""Who comes into an engine and when: by rows, by room, by what is read at once, and by who still waits."""

import pytest
import torch

from decode.test_batching import Recorded, alone, ids, served
from decode.test_engine import engine_of, run_dry
from glassformer.base.errors import BusyError, ConfigError
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.engine import Engine
from glassformer.decode.requests import Limits, Request
from specimens import close, model

ENDLESS = -1  # of `eos`: no text ends before its limit


def endless(limits: Limits, shape: str = "decoder", **settings) -> Engine:
    return Engine(model(shape, positions="rotary", **settings), limits, eos=ENDLESS)


@pytest.mark.parametrize("going", [0, 1], ids=["idle", "going"])
@pytest.mark.parametrize("rule", ["softmax", "linear"])
def test_prompts_read_one_after_another_in_a_step_keep_their_keys(rule, going):
    """Each of them is a group of its own, and the room grows between them."""
    together = Recorded()
    engine = engine_of(Limits(rows=8, reading=40), attention_rule=rule, head_bias=True, max_len=40)
    engine.model.head.bias.data[EOS] = -1e3
    short = [Request(ids(3), max_new_tokens=12, choose=together) for _ in range(going)]
    long = [Request(ids(n), max_new_tokens=4, first=n, choose=together) for n in (30, 33, 31, 36)]
    texts = served(engine, short + long, [0] * going + [2] * len(long))
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
    left = engine.submit(Request(ids(3)))
    engine.cancel(left)
    engine.submit(Request(ids(3)))
    with pytest.raises(BusyError, match="2 requests are waiting"):
        engine.submit(Request(ids(3)))
    assert len(engine.waiting) == 2


def test_those_who_left_the_queue_keep_nobody_out():
    """A wide one that is wanted no more does not count where room is counted, wherever it stands."""
    engine = endless(Limits(rows=4, tokens=40), max_len=40)
    going = engine.submit(Request(ids(3), max_new_tokens=6))  # 8 tokens
    engine.step()
    wide = engine.submit(Request(ids(3), max_new_tokens=30))  # 32: two times 32 do not fit
    narrow = engine.submit(Request(ids(3), max_new_tokens=6))
    engine.cancel(wide)
    assert {each.ticket for each in engine.step()} == {going, narrow}
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
