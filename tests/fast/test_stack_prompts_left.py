"""Calls of many tokens that C++ leaves to the modules or refuses, and what has changed since is seen."""

import pytest
import torch

from fast.natively import given, natively, stepwise
from fast.test_stack import rounding
from glassformer.base.errors import ResourceError
from glassformer.fast import stack as native_stack
from glassformer.fast.decoding import for_decoding
from glassformer.fast.stack import describe, remembers
from glassformer.nn.cache import Growing, Once
from glassformer.nn.stack import Stack
from specimens import close, model, native_cpp, tokens

pytestmark = native_cpp


def test_a_memory_that_does_not_fit_is_refused_as_by_the_modules():
    made, ids = model("encoder-decoder"), tokens(2, 3)
    ready, memory = natively(made), given(made)["memory"]
    with torch.no_grad(), pytest.raises(RuntimeError, match="mat1 and mat2"):
        ready(ids, memory=memory.float(), cache=ready.new_cache())
    told, layer, x = describe(ready.decoder.blocks, ready.decoder.norm), Once(), torch.zeros(2, 3, 16).double()
    assert remembers(layer, memory, x, told)
    assert not any(remembers(layer, wrong, x, told) for wrong in (None, memory[..., :-1], memory[:1], memory.float()))


def test_a_map_of_a_memory_may_have_a_hook(calls):
    made, ids = model("encoder-decoder"), tokens(2, 3)
    ready, memory, seen = natively(made), given(made), []
    ready.decoder.blocks[0].cross_attention.branch.key.register_forward_hook(lambda *given: seen.append(1))
    with torch.no_grad():
        close(ready(ids, cache=ready.new_cache(), **memory), made(ids, **memory))
    assert (calls, seen) == ([], [1])


def test_a_call_that_failed_leaves_no_keys_of_a_memory(monkeypatch):
    def failed(*given):
        raise ResourceError("no memory")

    for made in (model("encoder-decoder"), rounding(model("encoder-decoder"))):
        ids, ready, memory = tokens(2, 3), natively(made), given(made)
        cache = ready.new_cache()
        with torch.no_grad():
            with monkeypatch.context() as patch:
                patch.setattr(native_stack, "function", lambda dtype: failed)
                with pytest.raises(ResourceError):
                    ready(ids, cache=cache, **memory)
            assert not any(layer.complete for layer in cache.cross)
            cache.truncate(0)
            close(ready(ids, cache=cache, **memory), ready(ids, cache=ready.new_cache(), **memory))


@pytest.mark.parametrize("shape", ["encoder", "decoder"])
def test_long_texts_are_left_to_the_modules(shape, calls, monkeypatch):
    """As C++ reads all keys anew for each token."""
    ready, ids = natively(model(shape)), tokens(2, 7)
    with torch.no_grad():
        for longest in (49, 48):
            monkeypatch.setattr(native_stack, "LONG", longest)
            ready.hidden(ids)
    assert calls == [(7, None)]


def test_single_tokens_of_long_texts_run_in_cpp(calls, monkeypatch):
    monkeypatch.setattr(native_stack, "LONG", 3)
    made, ids = model("decoder"), tokens(2, 7)
    with torch.no_grad():
        close(stepwise(natively(made), ids, (5, 1, 1)), made(ids))
    assert calls == [(1, 5), (1, 6)]


@pytest.mark.parametrize("other", [{"n_kv_heads": 1}, {"d_head": 3}], ids=str)
def test_blocks_with_keys_of_other_sizes_are_left_to_the_modules(other):
    """Their caches would be made alike."""
    for name in ("self_attention", "cross_attention"):
        made, odd = model("encoder-decoder"), model("encoder-decoder", **other)
        getattr(made.reader.blocks[1], name).branch = getattr(odd.reader.blocks[1], name).branch
        assert type(natively(made).reader) is Stack
    made, odd = model("decoder"), model("decoder", **other)
    made.reader.blocks[1].self_attention.branch = odd.reader.blocks[1].self_attention.branch
    assert type(natively(made).reader) is Stack


def test_keys_are_on_the_cpu_whatever_the_default_device():
    layer = Growing()
    with torch.device("meta"):
        layer.claim((2, 2, 3, 4), torch.float64)
    assert all(each.device.type == "cpu" for each in layer.buffers)


def test_what_is_being_compiled_runs_by_its_modules(calls, monkeypatch):
    """Addresses cannot be traced."""
    ready, ids = natively(model("decoder")), tokens(2, 7)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        ready(ids)
    assert calls == []


def test_a_cache_of_fixed_size_is_left_to_the_modules(calls):
    made, ids = model("decoder"), tokens(2, 7)
    ready = natively(made)
    with torch.no_grad():
        cache = ready.new_cache(capacity=9)
        close(torch.cat([ready(part, cache=cache) for part in ids.split((4, 1, 2), 1)], 1), made(ids))
    assert calls == []


def test_fewer_rows_than_a_cache_of_texts_has_are_refused():
    ready, ids = natively(model("decoder")), tokens(3, 4)
    with torch.no_grad():
        ready(ids[:, :3], cache=(cache := ready.new_cache()))
        with pytest.raises(ValueError, match="a row for each of 1 texts, of 4 columns; got one of 3 by 16"):
            ready(ids[2:, 3:], cache=cache)


def test_weights_that_do_not_lie_row_by_row_are_left_to_the_modules():
    made, ids = model("decoder").float(), tokens(2, 7)
    up = made.reader.blocks[0].feed_forward.branch.up
    up.weight = torch.nn.Parameter(up.weight.detach().T.contiguous().T)
    with torch.no_grad():
        expected = made(ids)
        assert type(natively(made).reader) is Stack
        torch.testing.assert_close(for_decoding(made, "float32")(ids), expected, rtol=1e-4, atol=1e-4)


def test_an_encoder_decoder_reads_its_memory_without_a_cache_by_its_modules(calls):
    made, ids, source = model("encoder-decoder"), tokens(2, 7), tokens(2, 5)
    with torch.no_grad():
        close(natively(made)(ids, source=source), made(ids, source=source))
    assert calls == [(5, None)], "the encoder alone"


def test_blocks_that_were_exchanged_are_run(calls):
    made, ids = model("encoder"), tokens(2, 7)
    ready = natively(made)
    with torch.no_grad():
        before = ready.hidden(ids)
        ready.reader.blocks = ready.reader.blocks[1:]
        assert not torch.allclose(ready.hidden(ids), before)
    assert calls == [(7, None)] * 2


def test_weights_exchanged_before_a_text_of_one_token_are_read(calls):
    made, ids = model("decoder"), tokens(2, 2)
    ready = natively(made)
    with torch.no_grad():
        stepwise(ready, ids, (1, 1))
        for block in ready.reader.blocks:
            up = block.feed_forward.branch.up
            up.weight = torch.nn.Parameter(2 * up.weight)
        found, ready.reader.__class__ = stepwise(ready, ids, (1, 1)), Stack
        close(found, stepwise(ready, ids, (1, 1)))
    assert calls == [(1, 0), (1, 1)] * 2
