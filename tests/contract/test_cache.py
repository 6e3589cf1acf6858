"""The cache changes nothing: the same tokens through it, however they were cut, give the logits of one forward."""

import itertools

import pytest
import torch

from glassformer import ATTEND
from glassformer.nn import compact_cache as rolling
from specimens import ENDS, INSIDES, ORDERS, PATTERNS, RULES, close, model, padded, tokens

T = 7
CUTS = [(1,) * T, (3, 1, 2, 1), (T,)]
CACHES = {"growing": None, "fixed": T + 2}
VARIANTS = [
    *ORDERS, *({**each, "window": 3, "n_kv_heads": 2} for each in ORDERS if "rotary" not in each),
    *({"attention": name} for name in ATTEND["softmax"]), *INSIDES, *ENDS, *RULES, *PATTERNS, {"window": 1},
]  # fmt: skip
variants = pytest.mark.parametrize("variant", VARIANTS, ids=str)
caches = pytest.mark.parametrize("capacity", CACHES.values(), ids=CACHES)
shapes = pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])


@pytest.fixture(autouse=True)
def without_gradients(monkeypatch):
    """And caches of windows drop each key as soon as it is out of reach."""
    monkeypatch.setattr(rolling, "SLACK", 1)
    with torch.no_grad():
        yield


def memory_for(made, n_rows):
    """The encoder's memory of padded sources, where the model has an encoder."""
    if made.encoder is None:
        return {}
    source, keep = padded([tokens(4), tokens(2), tokens(5)][:n_rows], 6, "holes")
    return {"memory": made.encode(source, keep), "source_keep": keep}


def rows_of(given, rows):
    """The same memory for some of the rows."""
    return {name: value[rows] for name, value in given.items()}


@pytest.mark.each_two
@shapes
@caches
@variants
def test_steps_give_the_logits_of_one_forward(shape, capacity, variant):
    made, ids = model(shape, **variant), tokens(2, T)
    given = memory_for(made, 2)
    whole = made(ids, **given)
    for cut in CUTS:
        cache = made.new_cache(capacity)
        parts = [made(part, cache=cache, **given) for part in ids.split(cut, dim=1)]
        close(torch.cat(parts, dim=1), whole, cut)
        assert cache.length == T


@shapes
def test_a_fixed_cache_may_be_filled_to_the_brim(shape):
    made, ids = model(shape), tokens(2, T)
    given, cache = memory_for(made, 2), made.new_cache(T)
    close(torch.cat([made(part, cache=cache, **given) for part in ids.split(2, dim=1)], dim=1), made(ids, **given))


@pytest.mark.each_two
@pytest.mark.parametrize(
    ("shape", "where"), [("decoder", "left"), ("encoder-decoder", "right"), ("encoder-decoder", "holes")]
)
@caches
@variants
def test_rows_that_stand_at_different_positions_share_a_batch(shape, capacity, where, variant):
    """Prompts of 3, 1 and 2 tokens padded to 3 columns, then steps; then a row leaves, and the others change places."""
    made = model(shape, **variant)
    given = memory_for(made, 3)
    ends = {n: tokens(n + 4) for n in (3, 1, 2)}  # each row's ids, prompt and steps
    rows = [*ends.values()]
    prompts, keep = padded([ids[:n] for n, ids in ends.items()], 3, where)
    cache = made.new_cache(capacity)
    seen = [[logits[real]] for logits, real in zip(made(prompts, keep=keep, cache=cache, **given), keep, strict=True)]

    def step(which, size, done):
        """The next `size` tokens of the rows in `which`, of whose steps `done` were made."""
        starts = [len(rows[row]) - 4 + done for row in which]
        new = torch.stack([rows[row][start : start + size] for row, start in zip(which, starts, strict=True)])
        for row, logits in zip(which, made(new, cache=cache, **rows_of(given, list(which))), strict=True):
            seen[row].append(logits)

    step((0, 1, 2), 1, 0)
    cache.select(torch.tensor([2, 0]))
    step((2, 0), 2, 1)
    cache.select(torch.tensor([1]))
    step((0,), 1, 3)
    for row, (ids, parts) in enumerate(zip(rows, seen, strict=True)):
        logits = torch.cat(parts)
        expected = made(ids[None], **rows_of(given, [row]))[0]
        close(logits, expected[: len(logits)], row)
    assert [sum(map(len, parts)) for parts in seen] == [7, 2, 5]


@caches
def test_padding_may_come_in_a_later_step(capacity):
    made = model("decoder")
    ids, cache = tokens(2, 6), made.new_cache(capacity)
    first = made(ids[:, :2], cache=cache)
    second = made(ids[:, 2:4], keep=torch.tensor([[True, True], [False, True]]), cache=cache)
    third = made(ids[:, 4:], keep=torch.tensor([[True, True], [True, False]]), cache=cache)
    close(torch.cat([first[0], second[0], third[0]]), made(ids[:1])[0])
    real = [0, 1, 3, 4]
    close(torch.cat([first[1], second[1], third[1]])[real], made(ids[1:, real])[0])


def test_select_before_rows_differ():
    made = model("encoder-decoder")
    given, ids = memory_for(made, 3), tokens(3, 5)
    for capacity, order in itertools.product(CACHES.values(), ([2, 0], [1], [1, 1, 0])):
        cache = made.new_cache(capacity)
        made(ids[:, :3], cache=cache, **given)
        cache.select(torch.tensor(order))
        rest = made(ids[order, 3:], cache=cache, **rows_of(given, order))
        close(rest, made(ids[order], **rows_of(given, order))[:, 3:])


def test_the_memory_is_projected_once():
    made = model("encoder-decoder")
    given, cache = memory_for(made, 2), made.new_cache()
    calls = []
    for block in made.decoder.blocks:
        block.cross_attention.branch.key.register_forward_hook(lambda *_: calls.append(1))
    for part in tokens(2, 4).split(1, dim=1):
        made(part, cache=cache, **given)
    assert len(calls) == len(made.decoder.blocks)
