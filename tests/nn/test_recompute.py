"""Recomputation: the same bits in loss and gradients (N10), less kept for the backward, and nothing left behind."""

from contextlib import nullcontext

import pytest
import torch

from glassformer import ATTEND, Transformer, generate, observe, recompute
from glassformer.base.errors import ConfigError
from glassformer.base.runtime import seeded
from glassformer.train.loss import loss_of
from glassformer.train.objective import objective_for
from specimens import ENDS, FORWARD_ONLY, INSIDES, ORDERS, PATTERNS, RULES, SHAPES, model, tokens
from train.examples import assert_same, batch, gradients, kept

CPU = torch.device("cpu")
UNEVEN = [(3, 5), (1, 1), (6, 2), (4, 3)]
RANDOM = {"dropout": 0.1, "n_layers": 3, "vocab_size": 13}
VARIANTS = [
    {},
    {"stochastic_depth": 0.4},
    {"attention_dropout": 0.1, "feed_forward_dropout": 0.1, "token_dropout": 0.2},
    {"positions": "t5"},
    {"positions": "shaw"},
    {"positions": "rotary", "n_kv_heads": 1, "qk_norm": "rms", "norm": "rms", "norm_placement": "sandwich"},
    {"feed_forward": "experts", "n_experts": 3, "router_z_loss": 0.01},
    {"attention_rule": "linear"},
    {"window": 2, "attention": "sparse"},
    {"attention": "sdpa"},
]
REGISTERED = [
    *ORDERS,
    *({"attention": name} for name in ATTEND["softmax"] if name not in FORWARD_ONLY),
    *(*INSIDES, *ENDS, *RULES, *PATTERNS),
]
"""All that there is; each with dropout."""


def trained(shape: str, groups: int, *, dtype: torch.dtype = torch.float64, narrow: bool = False, **settings: object):
    """Loss and gradients of one training batch, by draws that hang on the seed alone."""
    torch.manual_seed(5)
    made = model(shape, dtype=dtype, **RANDOM | settings).train()
    data = batch(shape, UNEVEN)
    arithmetic = torch.autocast("cpu", dtype=torch.bfloat16) if narrow else nullcontext()
    with seeded(7, device=CPU):
        with arithmetic, recompute(made, groups):
            loss = loss_of(made, data, objective_for(made), label_smoothing=0.1).objective
        loss.backward()
        after = torch.rand(3)
    return {"loss": loss.detach(), "after": after} | gradients(made)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", VARIANTS, ids=lambda each: "-".join(map(str, each.values())) or "plain")
def test_gradients_are_the_same_bits(shape, settings):
    assert_same(trained(shape, 2, **settings), trained(shape, 0, **settings))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", range(len(REGISTERED)))
def test_gradients_are_the_same_bits_whatever_is_registered(shape, number):
    whole = trained(shape, 0, **REGISTERED[number])
    for groups in (1, 2, 3):
        assert_same(trained(shape, groups, **REGISTERED[number]), whole)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 7])
@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "autocast"])
def test_the_same_bits_in_the_arithmetic_of_training(shape, groups, narrow):
    of = {"dtype": torch.float32, "narrow": narrow, "stochastic_depth": 0.4}
    assert_same(trained(shape, groups, **of), trained(shape, 0, **of))


def test_only_what_goes_into_a_group_is_kept():
    made = model("decoder", n_layers=6, max_len=None).train()
    stream = 4 * 32 * 16 * 8  # B x T x D numbers of float64
    whole, each, pairs, one = (kept(made, groups, lambda: made(tokens(4, 32))) for groups in (0, 1, 2, 6))
    assert each - pairs == pytest.approx(3 * stream), "half as many streams are kept"
    assert pairs - one == pytest.approx(2 * stream)
    assert whole > 4 * each


def test_a_group_is_computed_once_more_and_no_oftener():
    made, calls = model("decoder", n_layers=4).train(), [0] * 4
    for i, block in enumerate(made.decoder.blocks):
        block.register_forward_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))
    with recompute(made, 2):
        loss = made(tokens(2, 5)).sum()
    assert calls == [1, 1, 1, 1]
    loss.backward()
    assert calls[:1] + calls[2:3] == [2, 2]
    assert max(calls) == 2


def written(made: Transformer) -> list[list[int]]:
    """The tokens of a few steps of decoding."""
    return [list(step.tokens) for step in generate(made, prompts=[[1, 2]], max_new_tokens=4)]


def test_names_observation_and_generation_are_as_without():
    made, ids = model("decoder", n_layers=3), tokens(2, 5)
    plain, names = made(ids), list(made.state_dict())
    with observe(made) as before:
        made(ids)
    answers = written(made)
    with recompute(made):
        assert list(made.state_dict()) == names
        assert torch.equal(made(ids), plain)
        with observe(made) as seen:
            made(ids)
        assert written(made) == answers
    assert_same(seen, before)
    assert made.decoder.recompute == 0


def test_ends_as_it_began_after_an_error():
    made = model("encoder-decoder")
    with pytest.raises(ZeroDivisionError), recompute(made):
        raise ZeroDivisionError
    assert made.encoder.recompute == made.decoder.recompute == 0


@pytest.mark.parametrize("wrong", [-1, True])
def test_a_group_has_a_number_of_blocks(wrong):
    with pytest.raises(ConfigError, match="recompute=1"), recompute(model("decoder"), wrong):
        pass
