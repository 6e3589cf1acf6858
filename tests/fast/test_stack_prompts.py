"""Many tokens at once in C++, with a cache and without, beside the modules: the same numbers."""

import pytest
import torch

from fast.natively import given, natively, stepwise
from fast.test_stack import WITHIN, own, rounding, shapes
from glassformer.base.errors import DataError, ResourceError
from glassformer.fast import native as native_linear
from glassformer.fast import stack as native_stack
from glassformer.fast.decoding import for_decoding
from glassformer.fast.native import CKeys, NativeLinear, reading
from glassformer.fast.stack import describe, may_run
from glassformer.nn.cache import Growing
from glassformer.nn.mask import Mask
from glassformer.nn.stack import Context, Stack
from specimens import close, model, native_cpp, tokens

pytestmark = native_cpp
variants = pytest.mark.parametrize("variant", [each for each in WITHIN if own(each)], ids=str)
MANY = 70
"""Texts of seven tokens that several threads share, each some of them (`APART` of stack.cpp)."""


def real(n, T=7):
    """Padding before, within and behind some texts; one has nothing else."""
    keep = torch.ones(n, T, dtype=torch.bool)
    keep[0, :3], keep[1, 2], keep[2, 4:] = False, False, False
    keep[n - 1] = False
    return keep


@variants
def test_an_encoder_is_that_of_the_modules(variant, calls):
    made, ids, keep = model("encoder", **variant), tokens(4, 7), real(4)
    ready = natively(made)
    with torch.no_grad():
        close(ready.hidden(ids), made.hidden(ids))
        close(ready.hidden(ids, keep=keep)[keep], made.hidden(ids, keep=keep)[keep])
    assert calls == [(7, None)] * 2


@variants
def test_a_decoder_without_a_cache_is_that_of_the_modules(variant, calls):
    made, ids, keep = model("decoder", **variant), tokens(4, 7), real(4)
    ready, documents = natively(made), torch.tensor([[0, 0, 0, 1, 1, 2, 2]]).repeat(4, 1)
    with torch.no_grad():
        for more in ({}, {"keep": keep}, {"documents": documents}, {"prefix": torch.tensor([2, 0, 3, 7])}):
            found, expected = ready(ids, **more), made(ids, **more)
            where = more.get("keep", torch.ones(4, 7, dtype=torch.bool))
            size = expected[where].abs().max()  # without norms, large numbers cancel one another
            close(found[where] / size, expected[where] / size)
    assert calls == [(7, None)] * 4


@shapes
@variants
@pytest.mark.parametrize("parts", [(7,), (1, 4, 2)], ids=str)
def test_a_prompt_and_what_follows_it(shape, variant, parts, calls):
    made, ids = model(shape, **variant), tokens(3, 7)
    ready, memory = natively(made), given(made, 3)
    with torch.no_grad():
        close(stepwise(ready, ids, parts, **memory), made(ids, **memory))
    assert calls == [(n, sum(parts[:i])) for i, n in enumerate(parts)]


@shapes
@pytest.mark.parametrize("variant", [{"positions": "rotary"}, {"positions": "alibi"}, {"convolution": 3}], ids=str)
def test_what_follows_a_padded_prompt(shape, variant, calls):
    made, ids, keep = model(shape, **variant), tokens(4, 7), real(4)
    keep[3], keep[2, 4:] = True, True
    ready, memory = natively(made), given(made, 4)
    with torch.no_grad():
        expected = made(ids, keep=keep, **memory)
    close(stepwise(ready, ids, (4, 3), keep, **memory)[keep], expected[keep])
    assert calls == [(4, 0), (3, 4)]


@shapes
def test_a_cache_that_modules_began_is_gone_on_with(shape, calls):
    """Also where values lie otherwise than keys."""
    made, ids = model(shape, positions="rotary"), tokens(3, 7)
    memory, cache, ready = given(made, 3), made.new_cache(), natively(made)
    with torch.no_grad():
        found = [made(ids[:, :3], cache=cache, **memory), ready(ids[:, 3:4], cache=cache, **memory)]
        for layer in (*cache.layers, *(cache.cross if memory else [])):
            keys, values = layer.buffers
            layer._held = (keys.clone(), values.transpose(1, 2).contiguous().transpose(1, 2))
        found.append(ready(ids[:, 4:], cache=cache, **memory))
        close(torch.cat(found, 1), made(ids, **memory))
    assert calls == [(1, 3), (3, 4)]


@shapes
def test_a_prompt_is_put_into_a_cache_in_8_bits(shape, calls):
    made, ids = rounding(model(shape, n_kv_heads=2, positions="rotary")), tokens(3, 7)
    memory = given(made, 3)
    expected = stepwise(made, ids, (4, 1, 2), **memory)
    close(stepwise(natively(made), ids, (4, 1, 2), **memory), expected)
    assert calls == [(4, 0), (1, 4), (2, 5)]


@pytest.mark.parametrize("variant", [{}, {"n_kv_heads": 2, "qk_norm": "rms", "d_head": 7}, {"bias": False}], ids=str)
def test_the_keys_of_a_memory_are_made_in_the_same_call(variant, calls, monkeypatch):
    made, ids, keep = model("encoder-decoder", **variant), tokens(4, 7), real(4, 5)
    keep[2] = True
    ready, memory, seen = natively(made), given(made, 4)["memory"], []
    with torch.no_grad():
        expected = made(ids, memory=memory, source_keep=keep)
        cache, linear = ready.new_cache(), torch.nn.functional.linear
        monkeypatch.setattr(torch.nn.functional, "linear", lambda *given: seen.append(1) or linear(*given))
        found = [ready(part, memory=memory, source_keep=keep, cache=cache) for part in ids.split((4, 3), 1)]
    close(torch.cat(found, 1), expected)
    assert len(seen) == 2, "the head, twice"
    assert calls == [(4, 0), (3, 4)]


@pytest.mark.parametrize("shape", ["encoder", "decoder", "encoder-decoder"])
@pytest.mark.parametrize("variant", [{}, {"positions": "rotary"}, {"positions": "alibi"}, {"convolution": 3}], ids=str)
def test_texts_that_threads_share(shape, variant, calls, threads):
    """Each of several texts at its own place, in what is read, added and written."""
    made, ids, keep = model(shape, **variant), tokens(MANY, 7), real(MANY)
    ready = natively(made)
    keep[MANY - 1], keep[2, 4:] = True, True
    memory = given(made, MANY)
    with torch.no_grad():
        expected = made.hidden(ids, keep=keep, **memory)
        for number in (1, 3):
            torch.set_num_threads(number)
            if shape != "encoder-decoder":
                close(ready.hidden(ids, keep=keep)[keep], expected[keep])
            if shape != "encoder":
                cache, found = ready.new_cache(), []
                for part, real_part in zip(ids.split((4, 1, 2), 1), keep.split((4, 1, 2), 1), strict=True):
                    found.append(ready.hidden(part, keep=real_part, cache=cache, **memory))
                close(torch.cat(found, 1)[keep], expected[keep])
    assert calls


@pytest.mark.parametrize("variant", [{"positions": "rotary"}, {"convolution": 3}], ids=str)
def test_columns_of_texts_that_threads_share(variant, calls):
    """Texts of unequal length in slots: each of them goes on in a column of its own."""
    made, lengths = model("decoder", **variant), [1 + i % 3 for i in range(3 * MANY)]
    ids, ready, slots = tokens(len(lengths), 4), natively(made), made.new_slots(len(lengths))
    keep = torch.arange(3) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        ready(ids[:, :3], keep=keep, cache=(prompts := ready.new_cache()))
        slots.take(prompts, [*range(len(lengths))], lengths, 4, ())
        new = torch.stack([ids[row, n] for row, n in enumerate(lengths)])
        found = ready(new[:, None], cache=slots)[:, 0]
        close(found, made(ids)[torch.arange(len(lengths)), torch.tensor(lengths)])
    assert calls == [(3, 0), (1, 3)]


def test_rows_that_threads_share_are_multiplied_once(monkeypatch, threads):
    monkeypatch.setattr(native_linear, "has_bfloat16", lambda device: False)  # which would multiply so many rows
    x = torch.randn(90, 24)
    torch.set_num_threads(3)
    for weight in (torch.randn(16, 24), torch.randn(16, 24).bfloat16()):
        map_, expected = NativeLinear(weight), x @ weight.float().T
        torch.testing.assert_close(map_(x), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", ["encoder", "decoder"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_text_is_the_same_alone_and_beside_others_on_any_number_of_threads(shape, precision, monkeypatch, threads):
    """To the last bit, but where hardware for bfloat16 reads many positions."""
    monkeypatch.setattr(native_linear, "has_bfloat16", lambda device: False)
    made = model(shape, d_model=128, n_heads=4, d_ff=512, feed_forward="gated", qk_norm="rms").float()
    ready, ids, found = for_decoding(made, precision), tokens(MANY, 7), []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        with torch.no_grad():
            found.append(ready.hidden(ids))
            found.append(torch.cat([ready.hidden(ids[:2]), ready.hidden(ids[2:3]), ready.hidden(ids[3:])]))
    assert all(torch.equal(each, found[0]) for each in found)


def test_a_prompt_needs_no_numbers_for_pairs_of_tokens():
    """The causal rule alone is told by a word: for long prompts the numbers would take the square of their length."""
    held, x = [], torch.zeros(1, 7, 8)
    output = reading(CKeys(), 7, Mask(causal=True), x, 2, held)
    assert (output.causal, output.added, held) == (1, None, [])
    output = reading(CKeys(), 7, Mask(causal=True, keep=torch.ones(1, 7, dtype=torch.bool)), x, 2, held)
    assert output.causal == 0
    assert output.added
    assert held


@pytest.mark.parametrize("spread", [0.3, 3.0, 60.0])
def test_gelu_is_exact_to_a_few_roundings(spread):
    made = model("encoder", n_layers=1, activation="gelu", norm_placement="pre").float()
    branch, ids = made.reader.blocks[0].feed_forward.branch, tokens(8, 7)
    with torch.no_grad():
        branch.up.weight.mul_(spread)
        expected = made.double().hidden(ids).float()
        found = natively(made.float()).hidden(ids)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_of_what_convolutions_read_no_more_is_kept_than_is_wanted(whole, calls):
    made, ids = model("decoder", convolution=3, max_len=None), tokens(2, 300)
    ready, sizes, found = natively(made), [], []
    cache = ready.new_cache(whole=whole)
    with torch.no_grad():
        for part in ids.split((5, *[1] * 295), dim=1):
            found.append(ready(part, cache=cache))
            sizes.append(sum(each.numel() for layer in cache.convolved.layers for each in layer.buffers))
        close(torch.cat(found, dim=1), made(ids))
    assert len(calls) == 296
    numbers = 4 * 2 * 16  # of a token: four layers, two texts, the width
    assert max(sizes) >= 300 * numbers if whole else max(sizes) <= 140 * numbers


# --- Calls of many tokens that C++ leaves to the modules or refuses, and what has changed since is seen


def test_a_memory_that_does_not_fit_is_refused_as_by_the_modules():
    made, ids = model("encoder-decoder"), tokens(2, 3)
    ready, memory = natively(made), given(made)["memory"]
    with torch.no_grad(), pytest.raises(DataError, match=r"must have the dtype of its weights, torch\.float64"):
        ready(ids, memory=memory.float(), cache=ready.new_cache())
    spec, cache, x = (
        describe(ready.decoder.blocks, ready.decoder.norm),
        ready.new_cache(),
        torch.zeros(2, 3, 16).double(),
    )
    x, context = torch.zeros(2, 3, 16).double(), Context(Mask(), None, memory, None, None)
    assert may_run(spec, x, context, cache)
    for wrong in (None, memory[..., :-1], memory[:1], memory.float()):
        assert not may_run(spec, x, context._replace(memory=wrong), cache)


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
