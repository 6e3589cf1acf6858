"""Feed-forward, residual and block against their equations, and what they refuse."""

import pytest
import torch
from torch import nn

from glassformer import ATTEND, Attention, Block, Mask, Transformer
from glassformer.base.errors import ConfigError
from glassformer.nn.block import Residual, StochasticDepth, drop_chance
from glassformer.nn.build import build_block
from glassformer.nn.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward, gelu_tanh
from glassformer.nn.norm import NORMS
from glassformer.nn.positions import Rotation, rotate
from specimens import close, config, normal, scramble, stack

X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1)).double()


class Times(nn.Module):
    """A branch whose doing is seen in the result."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, plus=0.0):
        return x * self.factor + plus


def test_feed_forward():
    branch = scramble(FeedForward(4, 7, torch.sin).double())
    inner = torch.sin(X @ branch.up.weight.mT + branch.up.bias)
    close(branch(X), inner @ branch.down.weight.mT + branch.down.bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "law"), [
    ("silu", lambda x: x / (1 + (-x).exp())),  # SwiGLU
    ("sigmoid", lambda x: 1 / (1 + (-x).exp())),  # GLU
    ("relu", lambda x: torch.where(x > 0, x, 0.0)),  # ReGLU
    ("gelu", lambda x: x * torch.special.ndtr(x)),  # GEGLU
    ("identity", lambda x: x),  # bilinear
])  # fmt: skip
def test_gated_feed_forward(name, law, bias):
    """Shazeer 2020, equation 6, one position and one inner number at a time."""
    branch = scramble(GatedFeedForward(4, 3, ACTIVATIONS[name], bias=bias).double())
    tensors = branch.state_dict()
    b = {each: tensors.get(f"{each}.bias", torch.zeros(4).double()) for each in ("gate", "up", "down")}
    expected = torch.zeros_like(X) + b["down"]
    for f in range(3):
        gate = law((X * tensors["gate.weight"][f]).sum(-1) + b["gate"][f])
        up = (X * tensors["up.weight"][f]).sum(-1) + b["up"][f]
        expected = expected + (gate * up)[..., None] * tensors["down.weight"][:, f]
    close(branch(X), expected)


def test_gated_dropout_falls_between_the_maps():
    branch = GatedFeedForward(4, 200, torch.ones_like, dropout=0.5, bias=False).double()
    with torch.no_grad():
        branch.up.weight.copy_(torch.eye(4).repeat(50, 1))
        branch.down.weight.fill_(1.0)
    out = branch(torch.ones(500, 4).double())
    assert abs(out.mean() - 200) < 5 * (200 / 500) ** 0.5
    assert out.std() > 5
    close(branch.eval()(torch.ones(2, 4).double()), torch.full((2, 4), 200.0).double())


@pytest.mark.parametrize(("name", "law"), [
    ("relu_squared", lambda x: x.clamp(min=0) ** 2),
    ("silu", lambda x: x * x.sigmoid()),
    ("sigmoid", lambda x: 1 / (1 + (-x).exp())),
    ("identity", lambda x: x),
])  # fmt: skip
def test_activations(name, law):
    close(ACTIVATIONS[name](3 * X), law(3 * X))


@pytest.mark.parametrize("kind", NORMS)
def test_query_and_key_norm(kind):
    """Written out: each head's query and key is normalised by itself, then turned; values are not touched."""
    made = scramble(Attention(8, 2, ATTEND["softmax"]["auto"], qk_norm=lambda n: NORMS[kind](n, 1e-5)).double())
    x, turned = torch.randn(2, 5, 8).double(), Rotation(*torch.randn(2, 5, 2).double())
    heads = []
    for h in range(2):
        rows = slice(4 * h, 4 * h + 4)
        q, k, v = ((each(x))[..., rows] for each in (made.query, made.key, made.value))
        q, k = (rotate(each[:, None], turned)[:, 0] for each in (made.query_norm(q), made.key_norm(k)))
        heads.append((q @ k.mT / 2).softmax(-1) @ v)
    close(made(x, mask=Mask(), rotation=turned), made.output(torch.cat(heads, dim=-1)))
    assert made.query_norm is not made.key_norm


def test_gelu_tanh():
    expected = 0.5 * X * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (X + 0.044715 * X**3)))
    close(gelu_tanh(X), expected)


@pytest.mark.parametrize(("placement", "expected"), [
    ("pre", X + 6 * X + 1),
    ("post", 2 * (X + 3 * X + 1)),
    ("output", X + 2 * (3 * X + 1)),
    ("sandwich", X + 2 * (6 * X + 1)),
])  # fmt: skip
def test_residual(placement, expected):
    """With a norm that doubles and a branch that triples and adds what it is given."""
    close(Residual(Times(3.0), lambda: Times(2.0), placement=placement)(X, plus=1.0), expected)


def test_residual_dropout_falls_on_the_branch_alone():
    out = Residual(Times(2.0), nn.Identity, dropout=0.5)(X)
    dropped = (out - X).abs() < 1e-12
    assert 0 < dropped.double().mean() < 1
    close(out[~dropped], (5 * X)[~dropped])


@pytest.mark.parametrize(("parallel", "expected"), [(False, X * 2 * 3 * 4), (True, X * (1 + 1 + 2 + 3))])
def test_block_is_its_branches_in_order_or_in_parallel(parallel, expected):
    class Tolerant(Times):
        def forward(self, x, **inputs):
            return super().forward(x)

    first, second, third = (Residual(Tolerant(factor), nn.Identity) for factor in (1.0, 2.0, 3.0))
    close(Block(first, second, third, parallel=parallel)(X, mask=Mask(), memory=X), expected)
    close(Block(first, None, third)(X, mask=Mask()), X * 2 * 4)


@pytest.mark.parametrize(("placement", "expected"), [("pre", X + 30 * X), ("sandwich", X + 2 * 30 * X)])
def test_a_branch_that_reads_elsewhere_adds_to_the_stream(placement, expected):
    close(Residual(Times(3.0), lambda: Times(2.0), placement=placement)(X, reads=5 * X), expected)


def test_a_block_reads_all_of_a_memory_without_a_mask():
    block = scramble(build_block(stack(d_model=4, n_heads=2), reads_memory=True).double())
    close(block(X, mask=Mask(), memory=X), block(X, mask=Mask(), memory=X, memory_mask=Mask()))


def test_a_block_with_cross_attention_wants_a_memory():
    """Without one it would read itself, and nobody would notice."""
    block = build_block(stack(d_model=4, n_heads=2), reads_memory=True).double()
    with pytest.raises(ConfigError, match="memory"):
        block(X, mask=Mask())


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


# --- Stochastic depth: one coin a sequence, the mean exact over both outcomes, more further up, none in evaluation


def outcomes(p: float, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a dropped row and a kept row become, by looking until both were seen."""
    depth, seen = StochasticDepth(p), {}
    for seed in range(200):
        torch.manual_seed(seed)
        out = depth(x)
        seen[bool((out == 0).all())] = out
    return seen[True], seen[False]


@pytest.mark.parametrize("p", [0.25, 0.5, 0.75])
def test_the_mean_over_both_outcomes_is_the_branch(p):
    x = normal(1, 3, 4)
    dropped, kept = outcomes(p, x)
    close(p * dropped + (1 - p) * kept, x)


def test_a_row_is_dropped_whole_and_by_itself():
    p, n = 0.3, 20_000
    dropped = (StochasticDepth(p)(torch.ones(n, 2, 3)) == 0).flatten(1)
    assert (dropped.all(1) == dropped.any(1)).all(), "a row is dropped whole or not at all"
    assert abs(dropped[:, 0].double().mean() - p) < 5 * (p * (1 - p) / n) ** 0.5
    both = (dropped[1:, 0] & dropped[:-1, 0]).double().mean()
    assert abs(both - p * p) < 5 * (p * p / n) ** 0.5, "neighbours have coins of their own"


def test_a_seed_gives_the_same_rows():
    depth, x = StochasticDepth(0.5), torch.ones(64, 1, 1)
    torch.manual_seed(4)
    first, second = depth(x), depth(x)
    torch.manual_seed(4)
    assert torch.equal(depth(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_stays(dtype):
    assert StochasticDepth(0.5)(torch.ones(4, 2, 2, dtype=dtype)).dtype == dtype


def test_none_in_evaluation():
    x = torch.randn(5, 2, 3)
    assert StochasticDepth(0.9).eval()(x) is x
    assert StochasticDepth(0.0)(x) is x


def test_a_skipped_branch_leaves_the_stream_alone():
    x = torch.randn(50, 2, 3).double()
    out = Residual(nn.Identity(), nn.Identity, stochastic_depth=0.5)(x)
    skipped = (out == x).flatten(1).all(1)
    assert 5 < skipped.sum() < 45
    close(out[~skipped], 3 * x[~skipped])


def test_the_chance_grows_linearly_to_the_last_block():
    """Huang et al. 2016, equation 4: 1 - p_l = l/L (1 - p_L), l from 1."""
    assert [drop_chance(i, 4, 0.2) for i in range(4)] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    made = Transformer(config(n_layers=4, stochastic_depth=0.2))
    for side in (made.encoder, made.decoder):
        found = [[branch.depth.p for branch in block.branches] for block in side.blocks]
        expected = [0.05, 0.1, 0.15, 0.2]
        assert [pytest.approx(each) for each in expected] == [row[0] for row in found]
        assert all(len(set(row)) == 1 for row in found)
