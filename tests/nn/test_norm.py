"""Norms against their equations."""

import pytest
import torch
from torch import nn

from glassformer.nn.norm import NORMS, LayerNorm, RMSNorm
from specimens import close, scramble

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1)).double()


def test_layer_norm():
    norm = scramble(LayerNorm(4, 0.1).double())
    mean, variance = X.mean(-1, keepdim=True), X.var(-1, keepdim=True, correction=0)
    close(norm(X), (X - mean) / (variance + 0.1).sqrt() * norm.weight + norm.bias)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_rms_norm_is_that_of_torch(eps):
    norm, theirs = scramble(RMSNorm(4, eps).double()), nn.RMSNorm(4, eps=eps).double()
    theirs.load_state_dict(norm.state_dict())
    close(norm(X), theirs(X))
    close(norm(X), X / (X.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight)


def test_rms_norm_rounds_before_the_weight():
    """In bfloat16, as Llama does: the root in float32, the quotient rounded, then the weight."""
    norm = RMSNorm(64, 1e-6)
    with torch.no_grad():
        norm.weight.normal_()
    norm, x = norm.bfloat16(), torch.randn(50, 64).bfloat16() * 3
    wide = x.float()
    quotient = (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).bfloat16()
    assert torch.equal(norm(x), norm.weight * quotient)
    late = quotient.float() * 0 + wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.weight.float()
    assert not torch.equal(norm(x), late.bfloat16()), "the orders differ, so the law says something"


def test_no_norm_is_nothing():
    norm = NORMS["none"](4, 1e-5)
    assert norm(X) is X
    assert not [*norm.parameters()]


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_answer_in_the_dtype_of_autocast(kind):
    norm = NORMS[kind](4, 1e-5)
    assert norm(X.float()).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(X.float()).dtype == torch.bfloat16
