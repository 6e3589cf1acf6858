"""Steps in C++ beside the modules they stand for: the same numbers."""

import copy
import math
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from decode.stepping import ROWS, best_of, together, written
from fast.natively import given, natively, stepwise
from glassformer.base.errors import ConfigError
from glassformer.decode.beam import beam_search, reading
from glassformer.decode.prepare import sharing_weights
from glassformer.decode.settings import BeamSettings
from glassformer.fast import native
from glassformer.fast import stack as native_stack
from glassformer.fast.decoding import for_decoding, join_projections, self_attentions
from glassformer.fast.native import FEW
from glassformer.fast.stack import StackInCpp, describe, with_native_stacks
from glassformer.nn.convolution import ShortConvolution
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.slots import Slots
from glassformer.nn.stack import Stack
from specimens import INSIDES, ORDERS, close, model, native_cpp, tokens

pytestmark = native_cpp
shapes = pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
WITHIN = [{}, {"bias": False}, {"n_kv_heads": 2, "positions": "rotary"}, {"d_head": 7}, {"d_ff": 13}, *ORDERS, *INSIDES]


def own(variant):
    """Whether C++ has all parts of a variant."""
    same = variant.get("feed_forward") != "experts" and "layers" not in variant
    return same and variant.get("positions") != "shaw"


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


def rounding(made):
    made.rounds_cache = True
    return made


@shapes
@pytest.mark.parametrize("variant", [{}, {"n_kv_heads": 2, "qk_norm": "rms", "positions": "rotary"}, {"d_head": 21}])
def test_a_cache_in_8_bits_is_read_as_it_is(shape, variant, steps):
    """Two steps that round a number to different neighbours would differ by a thousandth."""
    made, ids = rounding(model(shape, **variant)), tokens(2, 7)
    memory = given(made)
    expected = stepwise(made, ids, **memory)
    assert steps == [0]
    close(stepwise(natively(made), ids, **memory), expected)
    assert steps == [4]


@shapes
def test_a_cache_in_8_bits_is_read_in_float32(shape, steps):
    """By other instructions. A number that is rounded to its other neighbour changes a logit by a hundredth or less."""
    made, ids = rounding(model(shape, d_head=21).float()), tokens(2, 7)
    memory = given(made)
    apart = stepwise(natively(made), ids, **memory) - stepwise(made, ids, **memory)
    assert apart.abs().max() < 0.01
    assert steps == [4]


def test_values_of_zero_are_zero_in_8_bits(steps):
    made, ids = rounding(model("decoder")), tokens(2, 7)
    with torch.no_grad():
        for each in made.reader.blocks[0].self_attention.branch.value.parameters():
            each.zero_()
    close(stepwise(natively(made), ids), stepwise(made, ids))
    assert steps == [4]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_stays_so_in_8_bits(wrong, steps):
    made, ids = rounding(model("decoder")), tokens(2, 5)
    with torch.no_grad():
        made.reader.embedding.weight[ids[1, 3]] = wrong
    found, expected = stepwise(natively(made), ids, (3, 1, 1)), stepwise(made, ids, (3, 1, 1))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert found[1, 3:].isnan().all()
    assert steps == [2]


@shapes
def test_joined_maps_give_the_same(shape, steps):
    made, ids = model(shape, qk_norm="layer", n_kv_heads=2), tokens(2, 7)
    joined = sharing_weights(made)
    for attention in self_attentions(joined):
        join_projections(attention)
    memory = given(made)
    with torch.no_grad():
        close(stepwise(with_native_stacks(joined), ids, **memory), made(ids, **memory))
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
        found = [ready(it, memory=memory, source_keep=keep, cache=cache) for it in ids.split((3, 1, 1, 1, 1), dim=1)]
        close(torch.cat(found, dim=1), made(ids, memory=memory, source_keep=keep))
    assert steps == [4]


@shapes
@pytest.mark.parametrize("rounds", [False, True], ids=["", "8 bits"])
@pytest.mark.parametrize("variant", [{"positions": "rotary"}, {"positions": "alibi"}, {"convolution": 2}], ids=str)
def test_texts_are_those_of_the_modules(shape, variant, rounds, steps):
    """Rows that end, rows that come and go, and beams whose rows change places."""
    made = model(shape, **variant)
    made.rounds_cache = rounds
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
    ready, ids, memory = for_decoding(made, precision), tokens(2, 7), given(made)
    assert type(ready.reader) is StackInCpp
    with torch.no_grad():
        expected, found = made(ids, **memory), stepwise(ready, ids, **memory)
    assert found.dtype == torch.float32
    error = float((found - expected).norm() / expected.norm())
    low, high = {"float32": (0, 1e-6), "bfloat16": (1e-5, 0.01), "int8": (1e-4, 0.05)}[precision]
    assert low <= error <= high, "near, and rounding is seen"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("activation", ["silu", "sigmoid", "gelu", "gelu_tanh", "relu_squared"])
def test_functions_in_float32_are_exact_to_a_few_roundings(activation, closed, steps):
    """Also far from zero, where a power of e leaves float32, or e^-x is infinite: there the gate is closed."""
    made, ids = model("decoder", activation=activation, feed_forward="gated").float(), tokens(2, 7)
    with torch.no_grad():
        for gate in (block.feed_forward.branch.gate for block in made.reader.blocks):
            gate.bias.fill_(-1e38) if closed else gate.weight.mul_(60)
    found, expected = stepwise(natively(made), ids), stepwise(made, ids)
    atol = 2e-5 if closed else 2e-5 * float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=atol)
    assert steps == [4]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_row_is_the_same_alone_and_beside_others_on_any_number_of_threads(precision, threads):
    """To the last bit, prompts included. The model is wide enough for C++ to use the threads."""
    made = model("encoder-decoder", d_model=128, n_heads=4, d_ff=512, feed_forward="gated", qk_norm="rms").float()
    ready, ids, memory = for_decoding(made, precision), tokens(5, 6), given(made, 5)["memory"]
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        found.append(stepwise(ready, ids, (3, 1, 2), memory=memory))
        alone = [stepwise(ready, ids[i : i + 1], (3, 1, 2), memory=memory[i : i + 1]) for i in range(5)]
        found.append(torch.cat(alone))
    assert all(torch.equal(each, found[0]) for each in found)


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


# --- What steps in C++ cannot do is left to the modules, and what has changed since is seen


LEFT = [
    {"positions": "shaw"}, {"feed_forward": "experts", "n_experts": 3}, {"window": 3}, {"attention_rule": "linear"},
    {"attention_rule": "softcap"}, {"attention_rule": "sigmoid"},
]  # fmt: skip


@pytest.mark.parametrize("variant", LEFT, ids=str)
def test_what_is_not_in_cpp_is_left_to_the_modules(variant):
    made = model("decoder", **variant)
    ready = natively(made)
    assert type(ready.reader) is Stack
    assert written(ready, ROWS) == written(made, ROWS)


def test_a_model_that_is_watched_is_run_by_its_modules(steps):
    made = model("encoder-decoder")
    ready, ids, memory = natively(made), tokens(2, 5), given(made)
    with reading(ready) as seen:
        stepwise(ready, ids, (3, 1, 1), **memory)
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


def test_convolutions_that_reach_less_far_in_one_block_are_left_to_the_modules():
    made = model("decoder", convolution=3)
    assert describe(made.reader.blocks, made.reader.norm).near == 2
    made.reader.blocks[1].feed_forward.convolution = ShortConvolution(2, 16).double()
    assert describe(made.reader.blocks, made.reader.norm) is None
    made.reader.blocks[1].feed_forward.convolution = None
    assert describe(made.reader.blocks, made.reader.norm) is None
    assert type(natively(made).reader) is Stack


def test_coverage_needs_the_weights_and_gets_them():
    made = model("encoder-decoder")
    settings, given = BeamSettings(beam=2, coverage_penalty=0.4), {"sources": ROWS, "max_new_tokens": 5}
    assert beam_search(natively(made), settings, **given) == beam_search(made, settings, **given)


def test_gradients_autocast_and_training_are_left_to_the_modules(steps):
    ready, ids = natively(model("decoder", dropout=0.5).float()), tokens(2, 5)

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


def test_more_columns_than_a_memory_has_are_refused():
    ready, ids = natively(model("encoder-decoder")), tokens(2, 4)
    memory = given(ready)
    with torch.no_grad():
        ready(ids[:, :2], cache=(cache := ready.new_cache()), **memory)
        cache.cross[0].used = 6
        with pytest.raises(ValueError, match="for each of 2 texts, of 6 columns; got one of 2 by 5"):
            ready(ids[:, 2:3], cache=cache, **memory)


def test_dropout_alone_may_be_in_training(steps):
    ready, ids = natively(model("decoder", dropout=0.5)), tokens(2, 5)
    for each in ready.modules():
        each.train(isinstance(each, nn.Dropout))
    first, second = stepwise(ready, ids, (3, 1, 1)), stepwise(ready, ids, (3, 1, 1))
    assert not torch.allclose(first, second)
    assert steps == [0]


@pytest.mark.parametrize("variant", [{"positions": "rotary"}, {"activation": "gelu"}], ids=str)
def test_other_pairs_and_functions_under_a_known_name_are_left_to_the_modules(variant, monkeypatch, steps):
    monkeypatch.setattr(native_stack, "LAYOUTS", ("interleaved",))
    monkeypatch.setitem(ACTIVATIONS, "gelu", lambda x: 2 * x)
    made, ids = model("decoder", **variant), tokens(2, 5)
    close(stepwise(natively(made), ids, (3, 1, 1)), stepwise(made, ids, (3, 1, 1)))
    assert steps == [0]


def test_bfloat16_without_norms_and_biases_is_not_described():
    made = model("decoder", norm="none", bias=False).bfloat16()
    assert describe(made.reader.blocks, made.reader.norm) is None


def test_mixed_numbers_are_not_described():
    made = model("decoder")
    assert describe(made.reader.blocks, made.reader.norm) is not None
    made.reader.blocks[1].feed_forward.branch.up.float()
    assert describe(made.reader.blocks, made.reader.norm) is None


def test_without_a_compiler_modules_do_everything(monkeypatch, request):
    def none(source):
        raise ConfigError("no compiler")

    monkeypatch.setattr(native, "library", none)
    native.has_cpp.cache_clear()
    request.addfinalizer(native.has_cpp.cache_clear)
    made = model("decoder").float()
    assert type(for_decoding(made, "float32").reader) is Stack
    assert type(for_decoding(made, "bfloat16").reader) is Stack
    assert type(natively(made).reader) is Stack


def test_many_rows_in_bfloat16_are_left_to_hardware_for_it(steps, monkeypatch):
    monkeypatch.setattr("glassformer.fast.native.has_bfloat16", lambda device: True)
    monkeypatch.setattr("glassformer.fast.native.can_pack", lambda device: True)
    monkeypatch.setattr("glassformer.fast.native.PackedLinear", lambda weight, bias: lambda x: x @ weight.float().T)
    ready = for_decoding(model("decoder", bias=False).float(), "bfloat16")
    stepwise(ready, tokens(FEW, 4), (3, 1))
    assert steps == [1]
    stepwise(ready, tokens(FEW + 1, 4), (3, 1))
    assert steps == [1]


# --- What was told of a model or a cache may change while C++ runs its steps, and is seen


@pytest.mark.parametrize("place", ["blocks.0.self_attention", "norm"])
def test_a_hook_may_come_and_go(place, steps):
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), []
    stepwise(ready, ids, (3, 1, 1))
    hook = ready.reader.get_submodule(place).register_forward_hook(lambda *given: seen.append(given))
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([2], 3)
    hook.remove()
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([4], 3)


def test_a_hook_may_come_while_a_text_is_written(steps):
    """Also into a new table of hooks, as some programs make one to remove all."""
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), []
    block = ready.reader.blocks[0]
    with torch.no_grad():
        cache = ready.new_cache()
        for part in ids.split((3, 1, 1), dim=1):
            ready(part, cache=cache)
            if steps == [1] and not seen:
                block._forward_hooks = OrderedDict()
                block.register_forward_hook(lambda *given: seen.append(given))
    assert (steps, len(seen)) == ([1], 1)


def test_a_hook_of_all_modules_may_come_and_go(steps):
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), set()
    stepwise(ready, ids, (3, 1, 1))
    hook = register_module_forward_hook(lambda module, *given: seen.add(module))
    stepwise(ready, ids, (3, 1, 1))
    hook.remove()
    assert steps == [2]
    assert seen.issuperset([*ready.reader.blocks, ready.reader.norm])
    stepwise(ready, ids, (3, 1, 1))
    assert steps == [4]


def test_a_copy_reads_its_own_weights(steps):
    """Also one that is made while the model writes."""
    made, ids = natively(model("decoder")), tokens(2, 5)
    with torch.no_grad():
        cache = made.new_cache()
        before = torch.cat([made(part, cache=cache) for part in ids.split((3, 1, 1), dim=1)], dim=1)
    other = copy.deepcopy(made)
    with torch.no_grad():
        for weight in made.parameters():
            weight.zero_()
    assert torch.equal(stepwise(other, ids, (3, 1, 1)), before)
    assert steps == [4]


def test_a_mask_may_be_given_in_one_step_alone(steps):
    made, ids = model("encoder-decoder"), tokens(2, 5)
    memory, keep = given(made)["memory"], torch.ones(2, 5, dtype=torch.bool)
    keep[1, 2:] = False

    def read(made):
        cache, keeps = made.new_cache(), (None, keep, None)
        parts = zip(ids.split((3, 1, 1), dim=1), keeps, strict=True)
        with torch.no_grad():
            return [made(part, memory=memory, source_keep=each, cache=cache) for part, each in parts]

    for found, expected in zip(read(natively(made)), read(made), strict=True):
        close(found, expected)
    assert steps == [2]


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


def test_weights_exchanged_while_texts_come_and_go_are_read():
    """A prompt is read with the new weights; so are the steps of the texts that it joins."""
    ready, ids = natively(model("decoder")), tokens(2, 6)
    slots = Slots(2, most_rows=2)

    def take(row):
        prompts = ready.new_cache()
        ready(ids[row : row + 1, :3], cache=prompts)
        slots.take(prompts, [0], [3], 6)

    with torch.no_grad():
        take(0)
        ready(ids[:1, 3:4], cache=slots)
        up = ready.reader.blocks[0].feed_forward.branch.up
        up.weight = nn.Parameter(torch.randn_like(up.weight))
        take(1)
        found = ready(torch.stack([ids[0, 4:5], ids[1, 3:4]]), cache=slots)
        ready.reader.__class__ = Stack
        close(found[1], ready(ids[1:, :4])[0, 3:])


def test_what_changes_before_a_text_that_begins_elsewhere_is_seen(monkeypatch, steps):
    """A long prompt is read by the modules, and C++ goes on with it: with new weights, and if nothing drops."""
    monkeypatch.setattr(native_stack, "LONG", 16)
    ready, ids = natively(model("decoder", dropout=0.5)), tokens(2, 8)
    stepwise(ready, ids[:, :5], (3, 1, 1))
    up = ready.reader.blocks[0].feed_forward.branch.up
    up.weight = nn.Parameter(torch.randn_like(up.weight))
    found = stepwise(ready, ids, (6, 1, 1))
    assert steps == [4]
    with torch.no_grad():
        close(found, by_its_modules(ready)(ids))
    ready.reader.blocks[0].feed_forward.dropout.train()
    first, second = stepwise(ready, ids, (6, 1, 1)), stepwise(ready, ids, (6, 1, 1))
    assert not torch.allclose(first[:, -1], second[:, -1])
    assert steps == [4]


def by_its_modules(ready):
    """A copy that C++ does not run."""
    made = copy.deepcopy(ready)
    made.reader.__class__ = Stack
    return made


def test_two_caches_by_turns_are_told_apart():
    ready, ids = natively(model("decoder")), tokens(2, 5)
    with torch.no_grad():
        caches, whole = [ready.new_cache(), ready.new_cache()], ready(ids)
        for row, cache in enumerate(caches):
            ready(ids[row : row + 1, :3], cache=cache)
        for at in (3, 4):
            for row, cache in enumerate(caches):
                close(ready(ids[row : row + 1, at : at + 1], cache=cache)[0, 0], whole[row, at])


def test_a_cache_that_moves_leaves_its_old_room():
    ready, ids = natively(model("decoder")), tokens(2, 9)
    with torch.no_grad():
        cache = ready.new_cache()
        for part in ids[:, :5].split((3, 1, 1), dim=1):
            ready(part, cache=cache)
        old = [weakref.ref(each) for layer in cache.layers for each in layer.buffers]
        cache.select(torch.tensor([1]))
        assert not any(each() is not None for each in old)


def test_another_thread_may_run_a_step_at_the_same_time(monkeypatch):
    """While C++ computes, the other thread has its turn: here, before the call itself."""
    ready, ids = natively(model("encoder-decoder")), tokens(2, 4)
    memory = given(ready)
    own, call = ready.new_cache(), native_stack.function(torch.float64)
    other = ready.new_cache()

    def interrupted(*arguments):
        monkeypatch.undo()
        running = ready.reader.running
        places = [weakref.ref(running.own), weakref.ref(running.cross)]
        ready(ids[1:, 3:], cache=other, memory=memory["memory"][1:])
        assert running.own is not places[0]()
        assert all(each() is not None for each in places)
        call(*arguments)

    with torch.no_grad():
        for row, cache in enumerate((own, other)):
            ready(ids[row : row + 1, :3], cache=cache, memory=memory["memory"][row : row + 1])
        monkeypatch.setattr(native_stack, "function", lambda dtype: interrupted)
        close(ready(ids[:1, 3:], cache=own, memory=memory["memory"][:1]), ready(ids, **memory)[:1, 3:])
