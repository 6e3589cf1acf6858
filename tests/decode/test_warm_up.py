"""What an engine has written before anybody asks: steps of one row and of several, whatever room there is."""

import pytest
import torch

from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.requests import Limits, Request
from glassformer.nn.stack import Stack
from specimens import model


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
@pytest.mark.parametrize(
    ("settings", "limits", "rows"),
    [
        ({}, {"rows": 1}, [1]),
        ({}, {"rows": 2}, [1, 2]),
        ({}, {"rows": 8, "waiting": 1}, [1]),
        ({}, {"rows": 8, "waiting": 2}, [1, 2]),
        ({}, {"tokens": 1}, []),
        ({}, {"tokens": 3}, [1]),
        ({"max_len": 2}, {}, [1, 3]),
        ({"max_len": 1}, {}, []),
    ],
)
def test_where_there_is_less_room(shape, settings, limits, rows):
    made = model(shape, **settings)
    found = steps_of(made, Engine(made, Limits(**limits)))
    assert found == rows


def test_what_goes_wrong_is_not_swallowed():
    made = model("decoder")
    engine = Engine(made)

    def run(x, context, cache):
        raise RuntimeError("no compiler")

    made.reader.run = run
    with pytest.raises(RuntimeError, match="no compiler"):
        warm_up(engine)


def test_a_room_has_one_row_more_than_there_are():
    """One row in a room of one would be a further kind of step."""
    engine = Engine(model("decoder"))
    engine.submit(Request([5, 6], max_new_tokens=3))
    with torch.no_grad():
        engine.step()
    assert len(engine._slots.rooms[0]._held[0]) == 2


def test_a_room_is_never_read_whole():
    """That would be a further kind of step, too; so has it one column more than the longest text."""
    engine = Engine(model("decoder", max_len=90))
    engine.submit(Request([5] * 60, max_new_tokens=5))
    with torch.no_grad():
        engine.step()
    assert engine._slots.rooms[0]._held[0].shape[2] == 65
