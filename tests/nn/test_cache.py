"""The cache by itself: what it holds, where it says that keys stand, and what it refuses."""

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.nn.cache import Cache, Fixed, Growing, Once
from specimens import close, model, tokens


def kv(T, B=2):
    return torch.randn(B, 1, T, 3), torch.randn(B, 1, T, 3)


def test_a_growing_cache_seldom_moves():
    """Room doubles, so most steps write their own columns and nothing else."""
    cache, places = Growing(), []
    with torch.no_grad():
        for columns in range(1, 41):
            places.append((held := cache.append(*kv(1))[0]).data_ptr())
            assert held.shape[2] == columns
    assert len({*places}) <= 6


def test_what_was_appended_is_not_written_over():
    """Neither the caller's keys, nor what another cache or an earlier step was given."""
    cache, first = Growing(), kv(2)
    kept = first[0].clone()
    with torch.no_grad():
        early = cache.append(*first)[0]
        for _ in range(5):
            cache.append(*kv(1))
        cache.select(torch.tensor([1, 0]))
        cache.append(*kv(1))
    assert torch.equal(first[0], kept)
    assert torch.equal(early, kept)


@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
def test_gradients_go_through_a_growing_cache(shape):
    made, ids = model(shape), tokens(2, 6)
    given = {} if shape == "decoder" else {"source": tokens(2, 5)}
    made(ids, **given).square().sum().backward()
    expected = [each.grad.clone() for each in made.parameters()]
    made.zero_grad()
    cache, memory = made.new_cache(), {"memory": made.encode(given["source"])} if given else {}
    steps = [made(part, cache=cache, **memory) for part in ids.split((2, 1, 1, 2), dim=1)]
    torch.cat(steps, dim=1).square().sum().backward()
    for each, parameter in zip(expected, made.parameters(), strict=True):
        close(parameter.grad, each)


def test_keys_of_a_memory_move_only_where_a_row_reads_another_one():
    """Rows 0 and 1 stand for two sources; the rows that go on from them are those of a beam."""
    cache = Cache(1)
    keys = cache.cross[0].append(*kv(4))[0]
    moved = []
    for rows, sources in [([0, 0, 1], [0, 0, 1]), ([1, 0, 2], [0, 0, 1]), ([2, 1, 0], [1, 0, 0]), ([0, 2], [1, 0])]:
        before = cache.cross[0].read()[0].data_ptr()
        cache.select(torch.tensor(rows))
        held = cache.cross[0].read()[0]
        moved.append(held.data_ptr() != before)
        assert torch.equal(held, keys[sources])
    assert moved == [True, False, True, True]


def test_only_once_is_ever_complete():
    once, growing, fixed = Once(), Growing(), Fixed(9)
    assert not once.complete
    for cache in (once, growing, fixed):
        cache.append(*kv(2))
    assert (once.complete, growing.complete, fixed.complete) == (True, False, False)


def test_fixed_keeps_its_shape_and_its_memory():
    cache = Fixed(5)
    first, second = cache.append(*kv(2))[0], cache.append(*kv(1))[0]
    assert first.shape == second.shape == (2, 1, 5, 3)
    assert first.data_ptr() == second.data_ptr()
    assert (second[:, :, 3:] == 0).all()


@pytest.mark.parametrize("variant", [{}, {"attention_rule": "linear"}], ids=str)
def test_a_full_cache_refuses_and_stays_as_it_was(variant):
    made = model("decoder", **variant)
    cache, ids = made.new_cache(4), tokens(1, 4)
    made(ids[:, :3], cache=cache)
    with pytest.raises(ConfigError, match=r".* 4 tokens, .* needs room for 5\. Make one with new_cache\(capacity=5\)"):
        made(tokens(1, 2), cache=cache)
    assert torch.equal(made(ids[:, 3:], cache=cache)[:, -1].argmax(-1), made(ids)[:, -1].argmax(-1))
    with pytest.raises(ConfigError, match="room for 5"):
        made(tokens(1, 1), cache=cache)


@pytest.mark.parametrize("variant", [{}, {"window": 2}, {"attention_rule": "linear"}], ids=str)
@pytest.mark.parametrize("capacity", [None, 6])
def test_a_step_of_no_tokens_is_refused_and_leaves_the_cache_as_it_was(capacity, variant):
    made, ids = model("decoder", **variant), tokens(2, 4)
    cache = made.new_cache(capacity)
    for parts in ([], [ids[:, :3]]):
        for part in parts:
            made(part, cache=cache)
        with pytest.raises(DataError, match=r"at least one token; got shape \[2, 0\]"):
            made(ids[:, :0], cache=cache)
    close(made(ids[:, 3:], cache=cache), made(ids)[:, -1:])


def test_a_step_past_max_len_is_refused_and_leaves_the_cache_as_it_was():
    made = model("decoder", max_len=4)
    cache, ids = made.new_cache(), tokens(1, 4)
    made(ids[:, :3], cache=cache)
    with pytest.raises(DataError, match="at most max_len=4 tokens; got one of 5"):
        made(tokens(1, 2), cache=cache)
    close(made(ids[:, 3:], cache=cache), made(ids)[:, -1:])


@torch.no_grad()
def test_rows_that_take_back_the_same_stay_in_order():
    cache = model("decoder").new_cache()
    model("decoder")(tokens(2, 5), cache=cache)
    cache.take_back(torch.tensor([3, 3]))
    assert cache.length == 3
    assert cache.step(tokens(2, 2)).in_order


def test_sums_take_nothing_back():
    cache = model("decoder", attention_rule="linear").new_cache()
    with pytest.raises(ConfigError, match="cannot be removed from the cache of linear attention"):
        cache.truncate(1)
