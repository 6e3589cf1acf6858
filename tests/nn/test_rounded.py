"""Keys and values in 8 bits: how far they are rounded, what they take, and that all else is as it was."""

import pytest
import torch

from decode.stepping import ROWS, together, written
from glassformer.base.errors import ConfigError
from glassformer.decode.generate import generate
from glassformer.decode.prepare import CACHES
from glassformer.decode.speculative import speculative
from glassformer.fast.decoding import for_decoding
from glassformer.nn.cache import Growing
from glassformer.nn.compact_cache import Rounded
from glassformer.train.settings import DECODE_CACHES, DecodeConfig
from specimens import model, tokens

SHAPES = ["decoder", "encoder-decoder"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_key_that_is_no_number_is_seen(number):
    k, v = torch.randn(2, 1, 2, 3, 4)
    k[0, 1, 2, 3] = number
    keys, values = Rounded(Growing).append(k, v)
    assert keys[0, 1, 2].isfinite().logical_not().any()
    assert keys[0, 0].isfinite().all()
    assert values.isfinite().all()


def test_it_holds_what_a_growing_cache_holds_in_a_quarter_of_the_memory():
    exact, ours = Growing(), Rounded(Growing)
    with torch.no_grad():
        for size in (9, 1, 30):
            k, v = torch.randn(2, 3, 4, size, 64)
            for one, other in zip(exact.append(k, v), ours.append(k, v), strict=True):
                assert one.shape == other.shape
                torch.testing.assert_close(other, one, rtol=0, atol=0.02)
        for each in (exact, ours):
            each.select(torch.tensor([2, 0]))
            each.truncate(7)
    torch.testing.assert_close(ours.read(), exact.read(), rtol=0, atol=0.02)
    sizes = [sum(t.untyped_storage().nbytes() for t in each.read()) for each in (exact, ours.numbers, ours.steps)]
    assert (sizes[1] + sizes[2]) / sizes[0] < 0.27


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("variant", [{}, {"window": 2}, {"positions": "rotary", "n_kv_heads": 2}], ids=str)
@pytest.mark.parametrize("capacity", [None, 12])
def test_logits_are_those_of_exact_keys_but_for_the_rounding(shape, variant, capacity):
    exact = model(shape, **variant)
    ours, ids = for_decoding(exact, "float32", "int8"), tokens(2, 12)
    given = {} if shape == "decoder" else {"memory": exact.encode(tokens(2, 5))}
    with torch.no_grad():
        seen = []
        for each in (exact, ours):
            cache = each.new_cache(capacity)
            seen.append(torch.cat([each(part, cache=cache, **given) for part in ids.split(3, dim=1)], dim=1))
    gap, size = (seen[1] - seen[0]).abs().max(), seen[0].std()
    assert 1e-5 * size < gap < 0.05 * size


def test_the_model_itself_stays_as_it_is():
    exact = model("decoder")
    ours = for_decoding(exact, "float32", "int8")
    assert (exact.rounds_cache, ours.rounds_cache) == (False, True)
    assert all(a is b for a, b in zip(ours.parameters(), exact.parameters(), strict=True))
    assert for_decoding(exact, "float32") is exact


def test_guesses_can_be_taken_back():
    ours = for_decoding(model("decoder"), "float32", "int8")
    given = {"prompts": [[1, 7, 8, 7, 8]], "max_new_tokens": 8}
    plain = [each.tokens[0] for each in generate(ours, **given)]
    assert [each.tokens[0] for each in speculative(ours, lookup=2, **given)] == plain


@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_rows_that_come_and_go_write_what_they_would_alone(shape, positions):
    """By the modules, in float64: a key that is rounded twice would differ by half a step."""
    made = model(shape, positions=positions)
    made.rounds_cache = True
    alone = [written(made, [row])[:n] for row, n in zip(ROWS, (8, 4, 6), strict=True)]
    assert together(made) == [[token for (token,) in text] for text in alone]


def test_a_joining_row_is_not_rounded_again():
    made = model("decoder")
    made.rounds_cache = True
    prompts, slots = made.new_cache(whole=True), made.new_slots(4)
    with torch.no_grad():
        made(tokens(3, 5), cache=prompts)
        slots.take(prompts, [2, 0], [5, 5], 9)
    for room, layer in zip(slots.rooms, prompts.layers, strict=True):
        for mine, theirs in ((room.numbers, layer.numbers), (room.steps, layer.steps)):
            for a, b in zip(mine.read(), theirs.read(), strict=True):
                assert torch.equal(a, b[[2, 0]])


def test_what_has_no_keys_to_round_is_refused():
    with pytest.raises(ConfigError, match="rounds keys and values; linear attention caches none"):
        for_decoding(model("decoder", attention_rule="linear"), "float32", "int8")
    with pytest.raises(ConfigError, match="Compiled steps need an exact KV cache"):
        for_decoding(model("decoder"), "float32", "int8", compile=True)


def test_the_settings_name_the_caches_that_there_are():
    assert sorted(CACHES) == sorted(DECODE_CACHES)
    with pytest.raises(ConfigError, match=r"decode\.cache"):
        DecodeConfig(cache="int4")
