"""The cache in constant shapes: what it holds lies where it lay, and it holds what a growing one holds."""

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


def test_all_parts_are_told_how_many_tokens_there_are():
    cache = model("decoder", convolution=3).new_cache(9)
    cache.stand_at(4)
    assert [each.length for each in (cache, cache.convolved)] == [4, 4]
    assert {layer.used for each in (cache, cache.convolved) for layer in each.layers} == {4}
