"""Whatever is raised in a step ends the texts that it concerns, and the engine goes on."""

import pytest

from decode.test_batching import alone, ids
from decode.test_engine import engine_of, run_dry
from glassformer.data.tokens.vocabulary import EOS
from glassformer.decode.choose import greedy
from glassformer.decode.engine import Engine
from glassformer.decode.requests import Limits, Request


class Panic(BaseException):
    """As a library in another language raises it."""


def endless(limits: Limits | None = None, **settings) -> Engine:
    engine = engine_of(limits, head_bias=True, **settings)
    engine.model.head.bias.data[EOS] = -1e3
    return engine


def raises(kind: type[BaseException]):
    def broken(*_):
        raise kind("no more")

    return broken


def test_a_panic_of_a_choice_ends_its_own_text_alone():
    engine = endless()

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
    engine = endless(Limits(rows=3))
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
    assert [each.id for each in run_dry(engine) if each.ticket is waits] == alone_in(engine, request)
    assert not engine.busy


def alone_in(engine: Engine, request: Request) -> list[int]:
    other = Engine(engine.model, max_context=engine.max_context, drop=engine.drop)
    other.submit(request)
    return [each.id for each in run_dry(other)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["choice", "leave", "read"])
def test_who_ends_the_program_is_obeyed(kind, where, monkeypatch):
    """The step is left; what was in hand can be ended then, also what was just admitted."""
    engine = endless()
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
