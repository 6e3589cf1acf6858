"""The rules side by side, and what is said where a rule has not what was asked for."""

from __future__ import annotations

import pytest
import torch

from glassformer import ATTEND, Mask, StackConfig, Transformer
from glassformer.base.errors import ConfigError
from glassformer.nn.rules import RULES, choose
from specimens import close, config, normal


def qkv(T=5):
    return normal(2, 2, T, 3), normal(2, 2, T, 3), normal(2, 2, T, 3)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_specification_and_a_default(rule):
    assert {"reference", "auto"} <= {*ATTEND[rule]}
    assert ATTEND[rule] is RULES[rule].backends


@pytest.mark.parametrize("rule", RULES)
def test_sums_of_weights(rule):
    """1 for softmax and what is like it; less with one more in the denominator; anything for sigmoids."""
    q, k, _ = qkv()
    sums = RULES[rule].weigh(q, k, Mask(causal=True), scale=2.0).sum(-1)
    if rule == "softmax_plus_one":
        assert (sums < 1.0).all()
    elif rule == "sigmoid":
        assert sums.min() < 0.9
        assert sums.max() > 1.1
    else:
        close(sums, torch.ones_like(sums))


def test_plus_one_reads_nothing_where_nothing_fits():
    q, k, v = qkv()
    for backend in ATTEND["softmax_plus_one"].values():
        low = backend(q, k, v, Mask(bias=torch.full((2, 5, 5), -800.0).double()), scale=0.5)
        close(low, torch.zeros_like(low))
        high = backend(q, k, v, Mask(bias=torch.full((2, 5, 5), 800.0).double()), scale=0.5)
        close(high, ATTEND["softmax"]["reference"](q, k, v, Mask(), scale=0.5))


def test_a_cap_out_of_reach_is_softmax_and_a_low_one_is_a_mean():
    q, k, v = qkv()
    wide, _ = choose("softcap", "matmul", cap=1e6)
    close(wide(q, k, v, Mask(), scale=0.5), ATTEND["softmax"]["reference"](q, k, v, Mask(), scale=0.5), tolerance=1e-9)
    low, _ = choose("softcap", "matmul", cap=1e-9)
    close(low(q, k, v, Mask(), scale=0.5), v.mean(2, keepdim=True).expand_as(v), tolerance=1e-8)


def test_the_setting_of_the_cap_reaches_the_model():
    ids = torch.tensor([[1, 2, 3]])
    torch.manual_seed(0)
    made = Transformer(config("decoder", attention_rule="softcap", softcap=1e-9, positions="none"))
    same = made.decoder.blocks[0].self_attention.branch.weigh(*(torch.randn(1, 1, 3, 4),) * 2, Mask(), scale=1.0)
    close(same, torch.full_like(same, 1 / 3), tolerance=1e-6)
    assert made(ids).isfinite().all()


@pytest.mark.parametrize(
    ("rule", "backend"), [("linear", "sdpa"), ("linear", "sparse"), ("sigmoid", "sdpa"), ("softmax", "sums")]
)
def test_a_backend_that_the_rule_has_not(rule, backend):
    with pytest.raises(
        ConfigError, match=rf"'{rule}' has no backend '{backend}'; it has 'auto', .*'reference'.*attention='auto'"
    ):
        Transformer(config("decoder", attention_rule=rule, attention=backend))
    Transformer(config("decoder", attention_rule=rule, attention="auto"))


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan")])
def test_a_cap_below_zero(cap):
    with pytest.raises(ConfigError, match="softcap must be above 0"):
        choose("softcap", "auto", cap=cap)
    with pytest.raises(ConfigError, match="softcap must be above 0"):
        StackConfig(attention_rule="softcap", softcap=cap)
