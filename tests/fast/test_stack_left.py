"""What steps in C++ cannot do is left to the modules, and what has changed since is seen."""

import pytest
import torch
from torch import nn

from decode.stepping import ROWS, written
from fast.natively import given, natively, stepwise
from glassformer.base.errors import ConfigError
from glassformer.decode.beam import beam_search, reading
from glassformer.fast import native
from glassformer.fast import stack as native_stack
from glassformer.fast.decoding import for_decoding
from glassformer.fast.linear import FEW
from glassformer.fast.stack import describe
from glassformer.nn.block import ShortConvolution
from glassformer.nn.feed_forward import ACTIVATIONS
from glassformer.nn.slots import Slots
from glassformer.nn.stack import Stack
from specimens import close, model, native_cpp, tokens

pytestmark = native_cpp
LEFT = [
    {"positions": "shaw"},
    {"feed_forward": "experts", "n_experts": 3},
    {"window": 3},
    {"attention_rule": "linear"},
    {"attention_rule": "softcap"},
    {"attention_rule": "sigmoid"},
]


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


def test_other_pairs_than_cpp_rotates_are_left_to_the_modules(monkeypatch, steps):
    monkeypatch.setattr(native_stack, "LAYOUTS", ("interleaved",))
    made, ids = model("decoder", positions="rotary"), tokens(2, 5)
    close(stepwise(natively(made), ids, (3, 1, 1)), stepwise(made, ids, (3, 1, 1)))
    assert steps == [0]


def test_dropout_alone_may_be_in_training(steps):
    ready, ids = natively(model("decoder", dropout=0.5)), tokens(2, 5)
    for each in ready.modules():
        each.train(isinstance(each, nn.Dropout))
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
    monkeypatch.setattr("glassformer.fast.linear.has_bfloat16", lambda device: True)
    monkeypatch.setattr("glassformer.fast.linear.can_pack", lambda device: True)
    monkeypatch.setattr("glassformer.fast.linear.PackedLinear", lambda weight, bias: lambda x: x @ weight.float().T)
    ready = for_decoding(model("decoder", bias=False).float(), "bfloat16")
    stepwise(ready, tokens(FEW, 4), (3, 1))
    assert steps == [1]
    stepwise(ready, tokens(FEW + 1, 4), (3, 1))
    assert steps == [1]
