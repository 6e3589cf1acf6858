"""The cache in constant shapes: what it holds lies where it lay, and it holds what a growing one holds."""

from __future__ import annotations

import pytest
import torch

from glassformer.nn.cache import FixedCache
from specimens import close, model, tokens

VARIANTS = [{"positions": "rotary"}, {"convolution": 3}]


def read(network, ids, cache, keep=None):
    with torch.no_grad():
        return network(ids, keep=keep, cache=cache)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_all_keeps_its_place(settings):
    """Buffers, positions and the next column: a record of one step would find them all at the next."""
    network = model("decoder", **settings).eval()
    for keep in (None, torch.tensor([[True, True], [False, True]])):
        cache = network.new_cache(9)
        read(network, tokens(2, 2), cache, keep)
        read(network, tokens(2, 1), cache)
        places = []
        for _ in range(3):
            read(network, tokens(2, 1), cache)
            caches = [each for each in (cache, cache.convolved) if each is not None]
            held = [each for one in caches for layer in one.layers for each in layer.buffers]
            held += [each for one in caches for each in (one._keys, one._next)]
            places.append([each.data_ptr() for each in held])
        assert places[0] == places[1] == places[2]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("capacity", [None, 7])
@pytest.mark.parametrize("padded", [False, True])
def test_one_takes_over_what_another_holds(settings, capacity, padded):
    network = model("decoder", **settings).eval()
    first, then = tokens(2, 4), tokens(2, 3)
    keep = torch.tensor([[True] * 4, [False, True, True, True]]) if padded else None
    old, new = network.new_cache(capacity, whole=True), network.new_cache(12)
    read(network, first, old, keep)
    new.take(old)
    expected = read(network, then, old)
    assert isinstance(new, FixedCache)
    for i, part in enumerate(then.split(1, dim=1)):
        close(read(network, part, new)[:, 0], expected[:, i])
    assert new.length == old.length == 7


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_what_was_taken_back_is_written_anew(settings):
    network = model("decoder", **settings).eval()
    first, wrong, then = tokens(2, 3), tokens(2, 4), tokens(2, 2)
    cache, other = network.new_cache(9), network.new_cache()
    for ids in (first, wrong):
        read(network, ids, cache)
    cache.truncate(3)
    read(network, first, other)
    close(read(network, then, cache), read(network, then, other))


def test_all_parts_are_told_how_many_tokens_there_are():
    cache = model("decoder", convolution=3).new_cache(9)
    cache.stand_at(4)
    assert [each.length for each in (cache, cache.convolved)] == [4, 4]
    assert {layer.used for each in (cache, cache.convolved) for layer in each.layers} == {4}


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_rows_keep_their_positions_where_they_go(settings):
    network = model("decoder", **settings).eval()
    first, then = tokens(3, 4), tokens(3, 2)
    keep = torch.tensor([[True] * 4, [False, True, True, True], [False, False, False, True]])
    caches = network.new_cache(9), network.new_cache(whole=True)
    for cache in caches:
        read(network, first, cache, keep)
        cache.select(torch.tensor([2, 0, 2]))
    close(read(network, then, caches[0]), read(network, then, caches[1]))


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_each_row_takes_back_its_own(settings):
    network = model("decoder", **settings).eval()
    first, then = tokens(3, 6), tokens(3, 2)
    caches = network.new_cache(9), network.new_cache(whole=True)
    for cache in caches:
        cache.take_back(torch.tensor([1, 1, 1]))  # nothing yet, nothing to do
        read(network, first, cache)
        cache.take_back(torch.tensor([5, 3, 4]))
        assert cache.length == 5
    close(read(network, then, caches[0]), read(network, then, caches[1]))
