"""Norm, feed-forward, residual and block against their equations, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from glassformer import ATTEND, Attention, Block, Mask
from glassformer.foundation.errors import ConfigError
from glassformer.model.stack import build_block
from glassformer.parts import FeedForward, Residual
from glassformer.parts.activation import gelu_tanh
from glassformer.parts.norm import LayerNorm
from specimens import close, scramble, stack

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1)).double()


class Times(nn.Module):
    """A branch whose doing is seen in the result."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, plus=0.0):
        return x * self.factor + plus


def test_layer_norm():
    norm = scramble(LayerNorm(4, 0.1).double())
    mean, variance = X.mean(-1, keepdim=True), X.var(-1, keepdim=True, correction=0)
    close(norm(X), (X - mean) / (variance + 0.1).sqrt() * norm.weight + norm.bias)


def test_layer_norm_answers_in_the_dtype_of_autocast():
    norm = LayerNorm(4, 1e-5)
    assert norm(X.float()).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(X.float()).dtype == torch.bfloat16


def test_feed_forward():
    branch = scramble(FeedForward(4, 7, torch.sin).double())
    inner = torch.sin(X @ branch.up.weight.mT + branch.up.bias)
    close(branch(X), inner @ branch.down.weight.mT + branch.down.bias)


def test_gelu_tanh():
    expected = 0.5 * X * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (X + 0.044715 * X**3)))
    close(gelu_tanh(X), expected)


@pytest.mark.parametrize(("placement", "expected"), [("pre", X + 6 * X + 1), ("post", 2 * (X + 3 * X + 1))])
def test_residual(placement, expected):
    """With a norm that doubles and a branch that triples and adds what it is given."""
    close(Residual(Times(3.0), lambda: Times(2.0), placement=placement)(X, plus=1.0), expected)


def test_residual_dropout_falls_on_the_branch_alone():
    out = Residual(Times(2.0), nn.Identity, dropout=0.5)(X)
    dropped = (out - X).abs() < 1e-12
    assert 0 < dropped.double().mean() < 1
    close(out[~dropped], (5 * X)[~dropped])


def test_unknown_placement():
    with pytest.raises(ConfigError, match=r"norm_placement='prae' is not known.*'post', 'pre'.*Did you mean 'pre'"):
        Residual(Times(1.0), nn.Identity, placement="prae")


def test_block_is_its_branches_in_order():
    parts = (Residual(Times(f), nn.Identity, placement="post") for f in (1.0, 2.0, 3.0))

    class Tolerant(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, **inputs):
            return self.inner(x)

    first, second, third = (Residual(Tolerant(part.branch), nn.Identity) for part in parts)
    close(Block(first, second, third)(X, mask=Mask(), memory=X), X * 2 * 3 * 4)
    close(Block(first, None, third)(X, mask=Mask()), X * 2 * 4)


def test_a_block_reads_all_of_a_memory_without_a_mask():
    block = scramble(build_block(stack(d_model=4, n_heads=2), reads_memory=True).double())
    close(block(X, mask=Mask(), memory=X), block(X, mask=Mask(), memory=X, memory_mask=Mask()))


def test_a_block_with_cross_attention_wants_a_memory():
    """Without one it would read itself, and nobody would notice."""
    block = build_block(stack(d_model=4, n_heads=2), reads_memory=True).double()
    with pytest.raises(ConfigError, match="memory"):
        block(X, mask=Mask())


def test_writers_are_the_maps_into_the_stream():
    block = build_block(stack(), reads_memory=True)
    named = {id(module): name for name, module in block.named_modules()}
    assert [named[id(writer)] for writer in block.writers] == [
        "self_attention.branch.output",
        "cross_attention.branch.output",
        "feed_forward.branch.down",
    ]


def test_heads_may_be_wider_or_fewer_than_the_stream_says():
    attention = Attention(4, 3, ATTEND["softmax"]["auto"], n_kv_heads=1, d_head=5).double()
    assert attention.query.weight.shape == (15, 4)
    assert attention.key.weight.shape == attention.value.weight.shape == (5, 4)
    assert attention.output.weight.shape == (4, 15)
    assert attention(X, mask=Mask()).shape == X.shape


def test_grouped_heads_are_heads_that_share():
    """Grouped attention is full attention whose key and value heads were copied within a group."""
    few = scramble(Attention(8, 4, ATTEND["softmax"]["auto"], n_kv_heads=2).double())
    full = Attention(8, 4, ATTEND["softmax"]["auto"]).double()
    named = dict(few.named_parameters())
    copied = {
        name: tensor.unflatten(0, (2, 2)).repeat_interleave(2, dim=0).flatten(0, 1)
        if name[:3] in ("key", "val")
        else tensor
        for name, tensor in named.items()
    }
    full.load_state_dict(copied)
    x = torch.randn(2, 5, 8).double()
    close(few(x, mask=Mask(causal=True)), full(x, mask=Mask(causal=True)))
