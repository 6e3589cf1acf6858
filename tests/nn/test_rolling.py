"""The cache of windows: the logits of one that keeps all, in room that does not hang on the length of the text."""

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.decode.rows import begin_rows, read_first
from glassformer.nn import compact_cache as rolling
from glassformer.nn.cache import Cache, FixedCache
from glassformer.nn.compact_cache import RollingCache
from specimens import close, model, padded, tokens

WINDOWS = [
    {"window": 3}, {"window": 1}, {"window": 3, "dilation": 3}, {"window": 3, "sinks": 2},
    {"window": 4, "global_tokens": 3}, {"window": 3, "sinks": 2, "positions": "rotary", "n_kv_heads": 2},
    {"window": 3, "sinks": 1, "positions": "t5"},
]  # fmt: skip
windows = pytest.mark.parametrize("window", WINDOWS, ids=str)


def long(shape: str, **settings):
    return model(shape, max_len=1_100, **settings)


def held(cache: RollingCache) -> int:
    """Numbers that its layers hold on to."""
    kept = [each for layer in cache.rolling for each in layer.read()]
    return sum(each.untyped_storage().size() // each.element_size() for each in kept)


@pytest.mark.parametrize("window", [WINDOWS[0], WINDOWS[2], WINDOWS[4], WINDOWS[5]], ids=str)
def test_a_thousand_tokens_have_the_logits_of_a_cache_that_keeps_all(window):
    """Steps of one token and of several, after a prompt; the room stays what it was at the beginning."""
    made, ids = long("decoder", **window), tokens(2, 1_000)
    one, all_of_them = made.new_cache(), made.new_cache(whole=True)
    assert isinstance(one, RollingCache)
    assert type(all_of_them) is Cache
    sizes, parts = [], []
    with torch.no_grad():
        for part in ids.split([40, *[9] * 20, *[1] * 70, *[9] * 70, *[80]], dim=1):
            parts.append(made(part, cache=one))
            sizes.append(held(one))
        close(torch.cat(parts, dim=1), made(ids, cache=all_of_them))
    assert one.length == all_of_them.length == 1_000
    most = one.reach + one.first + 2 * rolling.SLACK + 9
    assert max(sizes[:-1]) <= 2 * 2 * 2 * made.config.stack.d_model * most


@pytest.mark.parametrize("learns", [True, False], ids=["gradients", "none"])
@windows
def test_rows_that_stand_at_different_positions_and_change_places(window, learns, monkeypatch):
    monkeypatch.setattr(rolling, "SLACK", 2)
    made, lengths = long("encoder-decoder", **window), (9, 2, 5)
    prompts, keep = padded([tokens(n) for n in lengths], 9, "left")
    memory = made.encode(tokens(3, 4))
    caches = [made.new_cache(), made.new_cache(whole=True)]
    with torch.set_grad_enabled(learns):
        close(*(made(prompts, keep=keep, memory=memory, cache=each) for each in caches))
        for rows in (None, [2, 0, 0, 1], None, None, [3, 1], None, [1, 1], None):
            if rows is not None:
                memory = memory[rows]
                for each in caches:
                    each.select(torch.tensor(rows))
            for size in (1, 3, 1):
                new = tokens(len(memory), size)
                real = torch.rand(new.shape) > 0.2
                given = {} if size == 1 else {"keep": real}
                seen = [made(new, memory=memory, cache=each, **given) for each in caches]
                marked = real if given else torch.ones_like(real)
                close(seen[0][marked], seen[1][marked])
    assert caches[0].dropped > 0


def test_only_a_window_rolls():
    others = [{}, {"stride": 3, "attention": "sparse"}, {"block": 3, "attention": "sparse"}]
    assert all(type(model("decoder", **each).new_cache()) is Cache for each in others)
    assert type(model("decoder", window=3).new_cache(9)) is FixedCache


def test_a_text_drops_what_its_window_does_not_reach():
    rows = begin_rows(made := model("decoder", window=3), 4, prompts=[[5, 6]])
    assert type(read_first(made, rows).cache) is RollingCache
    assert type(read_first(made, rows, whole=True).cache) is Cache


def test_what_was_dropped_cannot_be_taken_back():
    made = model("decoder", window=3)
    cache = made.new_cache()
    made(tokens(1, 4), cache=cache)
    with pytest.raises(ConfigError, match="cannot be removed"):
        cache.truncate(2)


def test_a_text_is_as_long_as_the_model_takes_though_keys_are_dropped(monkeypatch):
    monkeypatch.setattr(rolling, "SLACK", 1)
    made = model("decoder", window=2, max_len=8)
    cache = made.new_cache()
    with torch.no_grad():
        for part in tokens(1, 8).split(1, dim=1):
            made(part, cache=cache)
        with pytest.raises(DataError, match="at most max_len=8"):
            made(tokens(1, 1), cache=cache)


@torch.no_grad()
def test_room_made_before_a_step_drops_columns_once():
    """As a compiled step needs it."""
    layer, keys = rolling.Rolling(), torch.arange(6.0).reshape(1, 1, 6, 1)
    layer.append(keys[:, :, :5], -keys[:, :, :5])
    layer.stay = torch.tensor([3, 4])
    layer.make_room(1)
    assert layer.used == 2
    k, v = layer.append(keys[:, :, 5:], -keys[:, :, 5:])
    assert k.flatten().tolist() == [3.0, 4.0, 5.0]
    assert torch.equal(v, -k)
