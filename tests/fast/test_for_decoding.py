"""Models made ready for decoding: what is rounded is told, and all else is as it was."""

import copy

import pytest
import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.decode.generate import generate
from glassformer.fast.decoding import PRECISIONS, for_decoding, join_projections, self_attentions
from glassformer.fast.native import Int8Linear, NativeLinear, PackedLinear
from glassformer.train.settings import DECODE_PRECISIONS, DecodeConfig
from specimens import ORDERS, close, model, native_cpp, tokens

SHAPES = ["decoder", "encoder-decoder"]
shapes = pytest.mark.parametrize("shape", SHAPES)
rounding = pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=native_cpp)])


WAYS = [pytest.param(True, id="C++", marks=native_cpp), pytest.param(False, id="oneDNN")]


@pytest.fixture(params=WAYS)
def cpp(request, monkeypatch):
    """Whether our C++ is there."""
    if not request.param:
        monkeypatch.setattr("glassformer.fast.decoding.has_cpp", lambda: False)
    return request.param


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


@shapes
@pytest.mark.parametrize("variant", [{}, {"feed_forward": "gated", "bias": False}, {"positions": "rotary"}], ids=str)
def test_float32_is_the_model_with_other_maps(shape, variant, cpp):
    """Sums in another order: the same to a few roundings; the tensors that are not packed are the model's own."""
    made = in_float32(shape, **variant)
    ready, ids, source = for_decoding(made, "float32"), tokens(2, 5), given(shape)
    assert isinstance(ready.head.faster, NativeLinear if cpp else PackedLinear)
    assert made.head.faster is None
    with torch.no_grad():
        torch.testing.assert_close(ready(ids, **source), made(ids, **source), rtol=1e-5, atol=1e-5)
    assert {each.data_ptr() for each in ready.parameters()} <= {each.data_ptr() for each in made.parameters()}


@pytest.mark.usefixtures("cpp")
def test_maps_take_what_autocast_gives():
    made, ids = in_float32("decoder"), tokens(2, 5)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = for_decoding(made, "float32")(ids)
    torch.testing.assert_close(found.float(), made(ids), rtol=0.05, atol=0.05)


def test_other_dtypes_and_machines_without_onednn_decode_with_the_model_itself(monkeypatch):
    made = model("decoder")
    assert for_decoding(made, "float32") is made, "in float64"
    cut = in_float32("decoder")
    cut.unshard = lambda: None  # as a module of FSDP has it, which cannot be copied
    assert for_decoding(cut, "float32") is cut
    assert for_decoding(on_meta := in_float32("decoder").to("meta"), "float32") is on_meta
    monkeypatch.setattr("glassformer.fast.decoding.has_cpp", lambda: False)
    monkeypatch.setattr("glassformer.fast.decoding.can_pack", lambda device: False)
    narrow = in_float32("decoder")
    assert for_decoding(narrow, "float32") is narrow


@pytest.mark.usefixtures("cpp")
@shapes
@rounding
def test_the_model_stays_as_it_is(shape, precision):
    made = in_float32(shape)
    before = copy.deepcopy(made)
    ready = for_decoding(made, precision)
    assert ready is not made
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in before.named_parameters()]
    for mine, old in zip(made.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, old)
        assert mine.requires_grad
    assert {each.data_ptr() for each in made.parameters()}.isdisjoint(each.data_ptr() for each in ready.parameters())
    assert written(made, shape) == written(before, shape)


@shapes
def test_bfloat16_is_the_model_in_bfloat16(shape, monkeypatch):
    monkeypatch.setattr("glassformer.fast.decoding.has_cpp", lambda: False)
    made = in_float32(shape)
    ready, plain = for_decoding(made, "bfloat16"), copy.deepcopy(made).bfloat16()
    with torch.no_grad():
        ids, source = tokens(2, 5), given(shape)
        found, expected = ready(ids, **source), plain(ids, **source)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@native_cpp
@shapes
def test_bfloat16_in_cpp_is_the_model_with_rounded_weights(shape):
    made = in_float32(shape)
    plain = copy.deepcopy(made)
    with torch.no_grad():
        for each in plain.modules():
            if isinstance(each, nn.Linear):
                each.weight.copy_(each.weight.bfloat16())
        ids, source = tokens(2, 5), given(shape)
        ready, head = for_decoding(made, "bfloat16"), plain.head.weight.bfloat16().float()
        expected = plain.hidden(ids, **source) @ head.T
        torch.testing.assert_close(ready(ids, **source), expected, rtol=1e-5, atol=1e-5)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@native_cpp
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_map_that_computes_something_else_stays(precision):
    made, ids = in_float32("decoder"), tokens(2, 5)
    with torch.no_grad():
        plain = made(ids)
        for part in ("self_attention.branch.value", "feed_forward.branch.up"):
            made.get_submodule(f"decoder.blocks.0.{part}").__class__ = Doubled
        found, expected = for_decoding(made, precision)(ids), made(ids)
    assert (found - expected).norm() < 0.05 * expected.norm() < (plain - expected).norm()


@native_cpp
def test_int8_leaves_no_linear_map_but_routers():
    ready = for_decoding(in_float32("encoder-decoder", feed_forward="experts", n_experts=3), "int8")
    left = [name for name, each in ready.named_modules() if isinstance(each, nn.Linear)]
    assert {name.rpartition(".")[2] for name in left} == {"router"}
    assert isinstance(ready.head.faster, Int8Linear)
    assert ready.reader.embedding.weight.dtype == torch.float32, "it is looked up, and not rounded"


def test_names_are_those_of_the_setting():
    assert sorted(PRECISIONS) == [*DECODE_PRECISIONS]
    with pytest.raises(ConfigError, match=r"decode\.precision='bf16' is not known.*'bfloat16'"):
        DecodeConfig(precision="bf16")
    with pytest.raises(ConfigError, match=r"decode\.precision='bf16' is not known"):
        for_decoding(in_float32("decoder"), "bf16")


def test_int8_needs_a_cpu_and_a_compiler(monkeypatch):
    monkeypatch.setattr("glassformer.fast.decoding.compiler", lambda: None)
    with pytest.raises(ConfigError, match=r"'int8' needs a C\+\+ compiler, .*; none was found"):
        for_decoding(in_float32("decoder"), "int8")
    with pytest.raises(ConfigError, match=r"'int8' is for a CPU; the model is on meta\. Use 'bfloat16'"):
        for_decoding(in_float32("decoder").to("meta"), "int8")


def test_a_compiler_that_fails_is_told_before_anything_is_decoded(monkeypatch):
    def fail(source):
        raise ConfigError("the compiler failed")

    monkeypatch.setattr("glassformer.fast.decoding.compiler", lambda: "g++")
    monkeypatch.setattr("glassformer.fast.decoding.library", fail)
    with pytest.raises(ConfigError, match="the compiler failed"):
        for_decoding(in_float32("decoder"), "int8")


@pytest.mark.parametrize("fast", [True, False])
def test_auto_takes_bfloat16_where_it_is_fast(fast, monkeypatch):
    made, rounded = in_float32("decoder"), in_float32("decoder")
    monkeypatch.setattr("glassformer.decode.prepare.has_bfloat16", lambda device: fast)
    monkeypatch.setattr("glassformer.fast.decoding.in_bfloat16", lambda model: rounded if model is made else None)
    packed = in_float32("decoder")
    monkeypatch.setattr("glassformer.fast.decoding.in_float32", lambda model: packed if model is made else None)
    assert for_decoding(made, "auto") is (rounded if fast else packed)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", pytest.param("int8", marks=native_cpp)])
def test_the_parts_are_in_the_mode_of_the_model(precision, cpp):
    """Those put on it, too: whatever is in training would be put into evaluation for each token."""
    if precision == "int8" and not cpp:
        pytest.skip("needs our C++")
    for training in (False, True):
        made = for_decoding(in_float32("encoder-decoder").train(training), precision)
        assert {each.training for each in made.modules()} == {training}
