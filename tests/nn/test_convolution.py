"""Short convolutions: each vector with its shares of those before it, whoever stands between them in a batch."""

import pytest
import torch

from glassformer.base.errors import ConfigError
from glassformer.nn import compact_cache as rolling
from glassformer.nn.compact_cache import RollingCache
from glassformer.nn.convolution import ShortConvolution
from glassformer.nn.initialize import INITS
from glassformer.nn.transformer import Transformer
from specimens import close, config, model, normal, padded, scramble, stack, tokens

CAUSAL = [{}, {"window": 2}, {"attention_rule": "linear"}, {"positions": "rotary", "n_kv_heads": 2}]
variants = pytest.mark.parametrize("variant", CAUSAL, ids=str)


def written_out(x, weight):
    """y_t = x_t + sum over i of w_i x_(t-i), a number at a time."""
    y = x.clone()
    for t in range(x.shape[1]):
        for i, share in enumerate(weight, 1):
            if t >= i:
                y[:, t] += share * x[:, t - i]
    return y


@pytest.mark.parametrize("taps", [2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_it_is_the_sum_of_its_definition(taps, length):
    made, x = scramble(ShortConvolution(taps, 4).double()), normal(2, length, 4)
    assert made.weight.shape == (taps - 1, 4)
    close(made(x), written_out(x, made.weight))
    assert torch.autograd.gradcheck(made, (x,))


@pytest.mark.parametrize("init", INITS)
def test_a_new_one_changes_nothing(init):
    made, plain = (Transformer(config("decoder", convolution=n, init=init)) for n in (3, 1))
    for block in made.decoder.blocks:
        assert not block.self_attention.convolution.weight.any()
        assert not block.feed_forward.convolution.weight.any()
    plain.load_state_dict({name: each for name, each in made.state_dict().items() if ".convolution." not in name})
    ids = tokens(2, 5)
    assert torch.equal(made.eval()(ids), plain.eval()(ids))


def test_one_stands_before_self_attention_and_feed_forward_and_none_before_cross_attention():
    made = model("encoder-decoder", convolution=3)
    for block in (*made.encoder.blocks, *made.decoder.blocks):
        own, *cross, last = (each.convolution is not None for each in block.branches)
        assert (own, any(cross), last) == (True, False, True)
    assert all(".convolution." not in name for name, _ in model("encoder-decoder").named_parameters())


@variants
def test_rows_that_stand_at_different_positions_and_change_places(variant, monkeypatch):
    monkeypatch.setattr(rolling, "SLACK", 2)
    made, texts = model("decoder", convolution=3, max_len=None, **variant), [tokens(n) for n in (7, 1, 4)]
    prompts, keep = padded(texts, 8, "holes")
    cache = made.new_cache()
    made(prompts, keep=keep, cache=cache)
    for rows in ([2, 0, 0, 1], None, [1, 3], None, None):
        if rows is not None:
            cache.select(torch.tensor(rows))
            texts = [texts[row] for row in rows]
        for real in (torch.rand(len(texts), 3) > 0.3, torch.ones(len(texts), 1, dtype=torch.bool)):
            new = tokens(*real.shape)
            found = made(new, keep=None if real.all() else real, cache=cache)
            texts = [torch.cat([text, ids[its]]) for text, ids, its in zip(texts, new, real, strict=True)]
            for row, text in enumerate(texts):
                if n := int(real[row].sum()):
                    close(found[row][real[row]], made(text[None])[0, -n:])


def test_what_is_kept_for_it_does_not_grow():
    made, ids = model("decoder", convolution=3, max_len=None, attention_rule="linear"), tokens(1, 400)
    cache, sizes = made.new_cache(), set()
    assert isinstance(cache.convolved, RollingCache)
    with torch.no_grad():
        for part in ids.split(1, dim=1):
            made(part, cache=cache)
            sizes.add(sum(each.untyped_storage().nbytes() for layer in cache.convolved.layers for each in layer.read()))
    assert max(sizes) <= 2 * 2 * 16 * 8 * (2 + 2 * rolling.SLACK + 2)


@pytest.mark.parametrize(("variant", "whole", "message"), [
    ({}, False, r"drops what no window or convolution reads .* new_cache\(whole=True\)"),
    ({"attention_rule": "linear"}, False, "linear attention, which keeps only sums"),
    ({"attention_rule": "linear"}, True, "linear attention, which keeps only sums"),
], ids=str)  # fmt: skip
def test_where_tokens_cannot_be_taken_back_all_stays_as_it_was(variant, whole, message):
    made, ids = model("decoder", convolution=3, **variant), tokens(1, 6)
    cache = made.new_cache(whole=whole)
    made(ids[:, :4], cache=cache)
    with pytest.raises(ConfigError, match=message):
        cache.truncate(2)
    with pytest.raises(ConfigError, match=message):
        cache.take_back(torch.tensor([2]))
    close(made(ids[:, 4:], cache=cache), made(ids)[:, 4:])


@pytest.mark.parametrize(("own", "other"), [(3, 1), (3, 2), (3, 4), (1, 2)])
def test_a_cache_of_another_model_is_refused_and_stays_as_it_was(own, other):
    cache = model("decoder", convolution=other).new_cache()
    message = rf"convolution={own} needs a cache .* is for convolution={other}\. Use new_cache\(\) of the model"
    with pytest.raises(ConfigError, match=message):
        model("decoder", convolution=own)(tokens(1, 3), cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("wrong", [0, -1, True, 2.0, 65])
def test_taps_are_a_count(wrong):
    with pytest.raises(ConfigError, match="convolution"):
        stack(convolution=wrong)
