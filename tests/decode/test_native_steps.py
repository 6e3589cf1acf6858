"""Steps in C++ beside the modules they stand for: the same numbers, and what they cannot do is left to the modules."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from decode.stepping import ROWS, best_of, together, written
from glassformer.decode import native_steps
from glassformer.decode.beam import beam_search
from glassformer.decode.coverage import reading
from glassformer.decode.native_steps import NativeSteps, with_native_steps
from glassformer.decode.prepare import join_projections, prepared, self_attentions, sharing_weights
from glassformer.foundation.errors import ConfigError
from glassformer.model.stack import with_cache
from glassformer.parts import ACTIVATIONS, native
from glassformer.parts.described import describe
from glassformer.parts.dropout import Dropout
from glassformer.parts.native_linear import FEW
from glassformer.parts.slots import Slots
from specimens import INSIDES, ORDERS, close, model, native_cpp, tokens

pytestmark = native_cpp
SHAPES = ["decoder", "encoder-decoder"]
shapes = pytest.mark.parametrize("shape", SHAPES)
WITHIN = [{}, {"bias": False}, {"n_kv_heads": 2, "positions": "rotary"}, {"d_head": 7}, {"d_ff": 13}, *ORDERS, *INSIDES]
LEFT = [
    {"positions": "shaw"},
    {"feed_forward": "experts", "n_experts": 3},
    {"window": 3},
    {"attention_rule": "linear"},
    {"attention_rule": "softcap"},
    {"attention_rule": "sigmoid"},
]


@pytest.fixture
def steps(monkeypatch):
    """How many steps C++ has run."""
    count, step = [0], native_steps.step

    def counted(*given):
        count[0] += 1
        return step(*given)

    monkeypatch.setattr(native_steps, "step", counted)
    return count


def natively(made):
    return with_native_steps(sharing_weights(made))


def own(variant):
    """Whether C++ has all parts of a variant."""
    return variant.get("positions") != "shaw" and variant.get("feed_forward") != "experts"


def given(made, n=2):
    return {} if made.encoder is None else {"memory": made.encode(tokens(n, 5)).detach()}


def stepwise(made, ids, parts=(3, 1, 1, 1, 1), keep=None, **memory):
    """Logits of a text that is read in parts, with a cache."""
    cache, keeps = made.new_cache(), [None] * len(parts) if keep is None else keep.split(parts, dim=1)
    pairs = zip(ids.split(parts, dim=1), keeps, strict=True)
    with torch.no_grad():
        return torch.cat([made(part, keep=each, cache=cache, **memory) for part, each in pairs], dim=1)


@shapes
@pytest.mark.parametrize("variant", [each for each in WITHIN if own(each)], ids=str)
def test_a_step_is_that_of_the_modules(shape, variant, steps):
    made, ids = model(shape, **variant), tokens(2, 7)
    memory = given(made)
    found = stepwise(natively(made), ids, **memory)
    assert steps == [4]
    with torch.no_grad():
        expected = made(ids, **memory)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * max(1.0, float(expected.abs().max())))


@shapes
def test_joined_maps_give_the_same(shape, steps):
    made, ids = model(shape, qk_norm="layer", n_kv_heads=2), tokens(2, 7)
    joined = sharing_weights(made)
    for attention in self_attentions(joined):
        join_projections(attention)
    memory = given(made)
    with torch.no_grad():
        close(stepwise(with_native_steps(joined), ids, **memory), made(ids, **memory))
    assert steps == [4]


@shapes
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "t5"])
def test_padding_before_a_prompt(shape, positions, steps):
    made, ids, keep = model(shape, positions=positions), tokens(3, 7), torch.ones(3, 7, dtype=torch.bool)
    keep[1, :2] = False
    memory = given(made, 3)
    found = stepwise(natively(made), ids, keep=keep, **memory)
    with torch.no_grad():
        expected = made(ids, keep=keep, **memory)
    close(found[keep], expected[keep])
    assert steps == [4]


def test_padding_in_the_memory_and_a_row_that_may_read_nothing(steps):
    made, ids = model("encoder-decoder"), tokens(3, 7)
    memory, keep = given(made, 3)["memory"], torch.ones(3, 5, dtype=torch.bool)
    keep[1, 3:], keep[2] = False, False
    ready, cache = natively(made), None
    with torch.no_grad():
        cache = ready.new_cache()
        found = [
            ready(part, memory=memory, source_keep=keep, cache=cache) for part in ids.split((3, 1, 1, 1, 1), dim=1)
        ]
        close(torch.cat(found, dim=1), made(ids, memory=memory, source_keep=keep))
    assert steps == [4]


@shapes
@pytest.mark.parametrize("variant", [{}, {"positions": "rotary"}, {"positions": "alibi"}], ids=str)
def test_texts_are_those_of_the_modules(shape, variant, steps):
    """Rows that end, rows that come and go, and beams whose rows change places."""
    made = model(shape, **variant)
    ready = natively(made)
    assert written(ready, ROWS) == written(made, ROWS)
    assert written(ready, ROWS[:1]) == written(made, ROWS[:1])
    assert together(ready) == together(made)
    assert best_of(ready) == best_of(made)
    assert steps[0] > 20


@shapes
@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_each_row_of_a_running_batch_has_its_own_columns(shape, positions, steps):
    """Prompts of 3, 1 and 2 tokens in slots: the new key of each row stands behind those of that row."""
    made, lengths = model(shape, positions=positions), [3, 1, 2]
    ids, ready, memory = tokens(3, 6), natively(made), given(made, 3)
    keep = torch.arange(3) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        prompts, slots = ready.new_cache(), Slots(2, most_rows=4)
        ready(ids[:, :3], keep=keep, cache=prompts, **memory)
        slots.take(prompts, [0, 1, 2], lengths, 6, [5, 5, 5] if memory else ())
        for done in range(3):
            new = torch.stack([ids[row, n + done] for row, n in enumerate(lengths)])
            found = ready(new[:, None], cache=slots, **memory)[:, 0]
            close(found, made(ids, **memory)[torch.arange(3), torch.tensor(lengths) + done])
    assert steps == [3]


@shapes
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_every_precision_is_near_the_model(shape, precision):
    variant = {"feed_forward": "gated", "activation": "silu", "norm": "rms", "d_model": 24, "n_heads": 4, "d_ff": 37}
    made = model(shape, **variant).float()
    ready, ids, memory = prepared(made, precision), tokens(2, 7), given(made)
    assert isinstance(ready.reader.along, NativeSteps)
    with torch.no_grad():
        expected, found = made(ids, **memory), stepwise(ready, ids, **memory)
    assert found.dtype == torch.float32
    error = float((found - expected).norm() / expected.norm())
    low, high = {"float32": (0, 1e-6), "bfloat16": (1e-5, 0.01), "int8": (1e-4, 0.05)}[precision]
    assert low <= error <= high, "near, and rounding is seen"


@pytest.mark.parametrize("activation", ["silu", "sigmoid", "gelu", "gelu_tanh", "relu_squared"])
def test_functions_in_float32_are_exact_to_a_few_roundings(activation, steps):
    """Also far from zero, where a power of e leaves float32."""
    made = model("decoder", activation=activation, feed_forward="gated").float()
    with torch.no_grad():
        for block in made.reader.blocks:
            block.feed_forward.branch.gate.weight.mul_(60)
    ids = tokens(2, 7)
    found, expected = stepwise(natively(made), ids), stepwise(made, ids)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5 * float(expected.abs().max()))
    assert steps == [4]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_row_is_the_same_alone_and_beside_others_on_any_number_of_threads(precision):
    """To the last bit; prompts are read apart, because torch's product of a prompt may depend on its neighbours.

    The model is wide enough for C++ to use the threads.
    """
    made = model("encoder-decoder", d_model=128, n_heads=4, d_ff=512, feed_forward="gated", qk_norm="rms").float()
    ready, ids, memory = prepared(made, precision), tokens(5, 6), given(made, 5)["memory"]
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(stepwise(ready, ids, (1,) * 6, memory=memory))
            alone = [stepwise(ready, ids[i : i + 1], (1,) * 6, memory=memory[i : i + 1]) for i in range(5)]
            found.append(torch.cat(alone))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each[:, 1:], found[0][:, 1:]) for each in found)


def test_nan_is_seen(steps):
    made = model("decoder").float()
    ready, ids = natively(made), tokens(2, 4)
    cache = ready.new_cache()
    with torch.no_grad():
        ready(ids[:, :2], cache=cache)
        made.reader.embedding.weight[ids[1, 2]] = torch.nan
        found = ready(ids[:, 2:3], cache=cache)
    assert found[1].isnan().all()
    assert steps == [1]


@pytest.mark.parametrize("variant", LEFT, ids=str)
def test_what_is_not_in_cpp_is_left_to_the_modules(variant):
    made = model("decoder", **variant)
    ready = natively(made)
    assert ready.reader.along is with_cache
    assert written(ready, ROWS) == written(made, ROWS)


def test_a_model_that_is_watched_is_run_by_its_modules(steps):
    made = model("encoder-decoder")
    ready, ids, memory = natively(made), tokens(2, 5), given(made)
    with reading(ready) as seen:
        stepwise(ready, ids, (3, 1, 1), **memory)
        assert seen.weights is not None
        assert seen.weights.shape == (2, 1, 5)
    assert steps == [0]
    stepwise(ready, ids, (3, 1, 1), **memory)
    assert steps == [2]


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(module):
    module.register_forward_hook(lambda module, given, found: 2 * found)


def hooked_before(module):
    module.register_forward_pre_hook(lambda module, given: 2 * given[0])


def with_own_forward(module):
    plain = module.forward
    module.forward = lambda x: 2 * plain(x)


def as_subclass(module):
    module.__class__ = Doubled


@pytest.mark.parametrize("change", [hooked, hooked_before, with_own_forward, as_subclass])
def test_modules_that_compute_something_else_are_run_as_they_are(change, steps):
    made, ids = model("decoder"), tokens(2, 5)
    before = stepwise(made, ids, (3, 1, 1))
    change(made.reader.blocks[1].feed_forward.branch.up)
    found = stepwise(natively(made), ids, (3, 1, 1))
    close(found, stepwise(made, ids, (3, 1, 1)))
    assert not torch.allclose(found, before)
    assert steps == [0]


def test_a_hook_may_come_and_go(steps):
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), []
    stepwise(ready, ids, (3, 1, 1))
    hook = ready.reader.blocks[0].self_attention.register_forward_hook(lambda *given: seen.append(given))
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([2], 3)
    hook.remove()
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([4], 3)


def test_coverage_needs_the_weights_and_gets_them():
    made = model("encoder-decoder")
    given = {"sources": ROWS, "max_new_tokens": 5, "beam": 2, "coverage": 0.4}
    assert beam_search(natively(made), **given) == beam_search(made, **given)


def test_gradients_autocast_and_training_are_left_to_the_modules(steps):
    made = model("decoder", dropout=0.5).float()
    ready, ids = natively(made), tokens(2, 5)

    def read():
        cache = ready.new_cache()
        for part in ids.split((3, 1, 1), dim=1):
            ready(part, cache=cache)

    read()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        read()
    ready.train()
    with torch.no_grad():
        read()
    assert steps == [0]
    ready.eval()
    with torch.no_grad():
        read()
    assert steps == [2]


def test_a_copy_reads_its_own_weights(steps):
    made = natively(model("decoder"))
    ids = tokens(2, 5)
    before = stepwise(made, ids, (3, 1, 1))
    other = copy.deepcopy(made)
    with torch.no_grad():
        for weight in made.parameters():
            weight.zero_()
    assert torch.equal(stepwise(other, ids, (3, 1, 1)), before)
    assert steps == [4]


def test_weights_and_parts_that_were_exchanged_are_read(steps):
    """Each cache has a description of its own."""
    ready, ids = natively(model("decoder").float()), tokens(2, 5)
    ready = ready.double()
    blocks = ready.reader.blocks

    def agree():
        with torch.no_grad():
            close(stepwise(ready, ids, (3, 1, 1)), ready(ids))

    agree()
    blocks[0].feed_forward.branch.up.weight.data = torch.randn_like(blocks[0].feed_forward.branch.up.weight)
    agree()
    blocks[1] = copy.deepcopy(blocks[0])
    agree()
    blocks[1].self_attention.branch.scale = 0.9
    agree()
    assert steps == [8]


def test_a_model_that_is_converted_while_it_writes_is_left_to_its_modules(steps):
    ready, ids = natively(model("decoder").float()), tokens(2, 5)
    cache = ready.new_cache()
    with torch.no_grad():
        ready(ids[:, :3], cache=cache)
        ready(ids[:, 3:4], cache=cache)
        assert steps == [1]
        ready.double()
        for layer in cache.layers:
            layer._held = tuple(each.double() for each in layer._held)
        ready(ids[:, 4:5], cache=cache)
    assert steps == [1]


def test_what_torch_refuses_is_refused():
    """Memory that is not there is not read, and nothing is written behind a cache."""
    ready, ids = natively(model("encoder-decoder", max_len=80)), tokens(2, 4)
    memory, slots, prompts = given(ready), Slots(2, most_rows=4), ready.new_cache()
    with torch.no_grad():
        ready(ids[:, :2], cache=prompts, **memory)
        with pytest.raises(RuntimeError, match="expand"):
            ready(ids[:, 2:3], cache=prompts, source_keep=torch.ones(2, 4).bool(), memory=memory["memory"][:, :4])
        prompts = ready.new_cache()
        ready(ids[:, :2], cache=prompts, **memory)
        slots.take(prompts, [0, 1], [2, 2], 3, [5, 5])
        slots.lengths = [65, 65]
        with pytest.raises(IndexError, match="The cache has no column 65"):
            ready(ids[:, 2:3], cache=slots, **memory)


def test_dropout_alone_may_be_in_training(steps):
    ready, ids = natively(model("decoder", dropout=0.5)), tokens(2, 5)
    for each in ready.modules():
        each.train(isinstance(each, Dropout))
    first, second = stepwise(ready, ids, (3, 1, 1)), stepwise(ready, ids, (3, 1, 1))
    assert not torch.allclose(first, second)
    assert steps == [0]


def test_another_function_under_a_known_name_is_not_taken_for_it(monkeypatch, steps):
    monkeypatch.setitem(ACTIVATIONS, "gelu", lambda x: 2 * x)
    made, ids = model("decoder", activation="gelu"), tokens(2, 5)
    close(stepwise(natively(made), ids, (3, 1, 1)), stepwise(made, ids, (3, 1, 1)))
    assert steps == [0]


def test_bfloat16_without_norms_and_biases_is_not_described():
    made = model("decoder", norm="none", bias=False).bfloat16()
    assert describe(made.reader.blocks) is None


def test_mixed_numbers_are_not_described():
    made = model("decoder")
    assert describe(made.reader.blocks) is not None
    made.reader.blocks[1].feed_forward.branch.up.float()
    assert describe(made.reader.blocks) is None


def test_without_a_compiler_modules_do_everything(monkeypatch, request):
    def none(source):
        raise ConfigError("no compiler")

    monkeypatch.setattr(native, "library", none)
    native.has_cpp.cache_clear()
    request.addfinalizer(native.has_cpp.cache_clear)
    made = model("decoder").float()
    assert prepared(made, "float32").reader.along is with_cache
    assert prepared(made, "bfloat16").reader.along is with_cache
    assert natively(made).reader.along is with_cache


@shapes
def test_rounded_keys_are_left_to_the_modules(shape):
    made = model(shape).float()
    ready = prepared(made, "float32", "int8")
    assert ready.reader.along is with_cache
    assert len(written(ready, ROWS)) == 9


def test_many_rows_in_bfloat16_are_left_to_hardware_for_it(steps, monkeypatch):
    monkeypatch.setattr("glassformer.parts.native_linear.has_bfloat16", lambda device: True)
    monkeypatch.setattr("glassformer.parts.native_linear.can_pack", lambda device: True)
    monkeypatch.setattr(
        "glassformer.parts.native_linear.PackedLinear", lambda weight, bias: lambda x: x @ weight.float().T
    )
    ready = prepared(model("decoder", bias=False).float(), "bfloat16")
    stepwise(ready, tokens(FEW, 4), (3, 1))
    assert steps == [1]
    stepwise(ready, tokens(FEW + 1, 4), (3, 1))
    assert steps == [1]
