"""The rules side by side, and what is said where a rule has not what was asked for."""

import pytest
import torch

from glassformer import ATTEND, Mask, Transformer
from glassformer.base.errors import ConfigError
from glassformer.nn.rules import choose
from specimens import close, config, normal


def qkv(T=5):
    return normal(2, 2, T, 3), normal(2, 2, T, 3), normal(2, 2, T, 3)


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
    with pytest.raises(ConfigError, match=rf"'{rule}' .* '{backend}'; it has 'auto', .*'reference'.*attention='auto'"):
        Transformer(config("decoder", attention_rule=rule, attention=backend))
    Transformer(config("decoder", attention_rule=rule, attention="auto"))
