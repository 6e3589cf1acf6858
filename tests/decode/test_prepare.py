"""Models made ready for decoding: what is rounded is told, and all else is as it was."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from glassformer.decode.generate import generate
from glassformer.decode.prepare import PRECISIONS, join_projections, prepared, self_attentions
from glassformer.foundation.errors import ConfigError
from glassformer.parts.int8 import Int8Linear
from glassformer.train.settings import DECODE_PRECISIONS, DecodeConfig
from specimens import ORDERS, close, model, tokens

SHAPES = ["decoder", "encoder-decoder"]
shapes = pytest.mark.parametrize("shape", SHAPES)


def given(shape, n=2):
    return {} if shape == "decoder" else {"source": tokens(n, 5)}


def in_float32(shape, **settings):
    return model(shape, **settings).float()


def written(made, shape):
    """Six tokens for each of three rows."""
    rows = [[5, 6, 7], [8], [9, 10]]
    read = {"prompts": rows} if shape == "decoder" else {"sources": rows}
    return [step.tokens for step in generate(made, **read, max_new_tokens=6, eos=-1)]


@shapes
@pytest.mark.parametrize("variant", [*ORDERS, {"qk_norm": "rms"}, {"n_kv_heads": 2}, {"bias": False}], ids=str)
def test_joined_projections_change_nothing(shape, variant):
    made, ids, source = model(shape, **variant), tokens(2, 6), given(shape)
    joined = copy.deepcopy(made)
    for attention in self_attentions(joined):
        join_projections(attention)
    with torch.no_grad():
        expected, cache = made(ids, **source), joined.new_cache()
        close(joined(ids, **source), expected)
        close(torch.cat([joined(part, cache=cache, **source) for part in ids.split((2, 1, 3), dim=1)], dim=1), expected)


def test_every_self_attention_is_joined():
    made = prepared(in_float32("encoder-decoder"), "bfloat16")
    assert len(self_attentions(made)) == 4
    assert all(each.joined is not None and not hasattr(each, "key") for each in self_attentions(made))


def test_float32_is_the_model_itself():
    made = in_float32("decoder")
    assert prepared(made, "float32") is made


@shapes
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_the_model_stays_as_it_is(shape, precision):
    made = in_float32(shape)
    before = copy.deepcopy(made)
    ready = prepared(made, precision)
    assert ready is not made
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in before.named_parameters()]
    for mine, old in zip(made.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, old)
        assert mine.requires_grad
    assert {each.data_ptr() for each in made.parameters()}.isdisjoint(each.data_ptr() for each in ready.parameters())
    assert written(made, shape) == written(before, shape)


@shapes
def test_bfloat16_is_the_model_in_bfloat16(shape):
    made = in_float32(shape)
    ready, plain = prepared(made, "bfloat16"), copy.deepcopy(made).bfloat16()
    with torch.no_grad():
        ids, source = tokens(2, 5), given(shape)
        found, expected = ready(ids, **source), plain(ids, **source)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@shapes
@pytest.mark.parametrize("variant", [{}, {"feed_forward": "gated", "bias": False}, {"positions": "rotary"}], ids=str)
def test_int8_is_the_model_of_the_rounded_weights(shape, variant):
    """Each map and the head, with weights rounded, in our own arithmetic of float64."""
    made = in_float32(shape, **variant)
    ready, exact = prepared(made, "int8"), copy.deepcopy(made).double()
    table = exact.reader.embedding.weight.detach().clone()
    for each in exact.modules():
        if isinstance(each, nn.Linear):
            each.weight.data = dequantised(each.weight)
    exact.head.weight = nn.Parameter(dequantised(exact.head.weight))
    assert torch.equal(exact.reader.embedding.weight, table), "the embedding is looked up, and not rounded"
    ids, source = tokens(2, 5), given(shape)
    with torch.no_grad():
        found, expected, unrounded = (each(ids, **source).double() for each in (ready, exact, made))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (unrounded - expected).abs().max() > 1e-4, "the rounding itself is seen"


def dequantised(weight):
    rounded = Int8Linear(weight.float())
    return (rounded.weight.double() * rounded.scale.double()[:, None])[:, : weight.shape[1]]


def test_int8_leaves_no_linear_map_but_routers():
    ready = prepared(in_float32("encoder-decoder", feed_forward="experts", n_experts=3), "int8")
    left = [name for name, each in ready.named_modules() if isinstance(each, nn.Linear)]
    assert {name.rpartition(".")[2] for name in left} == {"router"}
    assert isinstance(ready.head.rounded, Int8Linear)


@shapes
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_steps_of_a_prepared_model_are_those_of_one_forward(shape, precision):
    """As exact as the precision is: each token is the likeliest of a forward without a cache, or next to it."""
    made = prepared(in_float32(shape), precision)
    with torch.no_grad():
        ids, source = tokens(2, 7), given(shape)
        cache, memory = made.new_cache(), {"memory": made.encode(source["source"])} if source else {}
        steps = torch.cat([made(part, cache=cache, **memory) for part in ids.split((3, 1, 1, 2), dim=1)], dim=1)
        whole = made(ids, **memory)
    spread = 0.05 if precision == "bfloat16" else 1e-4
    torch.testing.assert_close(steps, whole, rtol=spread, atol=spread)


def test_names_are_those_of_the_setting():
    assert sorted(PRECISIONS) == [*DECODE_PRECISIONS]
    with pytest.raises(ConfigError, match=r"decode\.precision='bf16' is not known.*'bfloat16'"):
        DecodeConfig(precision="bf16")
    with pytest.raises(ConfigError, match=r"decode\.precision='bf16' is not known"):
        prepared(in_float32("decoder"), "bf16")


def test_int8_refuses_what_its_product_does_not_take():
    with pytest.raises(ConfigError, match="the model is in float64"):
        prepared(model("decoder"), "int8")
    with pytest.raises(ConfigError, match=r"'int8' has its product on a processor; the model is on meta"):
        prepared(in_float32("decoder").to("meta"), "int8")


@pytest.mark.parametrize("here", [True, False])
def test_auto_takes_bfloat16_where_it_is_fast(here, monkeypatch):
    monkeypatch.setattr("glassformer.decode.prepare.has_bfloat16", lambda device: here)
    made = in_float32("decoder")
    ready = prepared(made, "auto")
    assert (ready is made) is (not here)
    assert next(ready.parameters()).dtype == (torch.bfloat16 if here else torch.float32)
