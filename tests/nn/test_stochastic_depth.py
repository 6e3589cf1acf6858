"""Stochastic depth: one coin a sequence, the mean exact over both outcomes, more further up, none in evaluation."""

import pytest
import torch
from torch import nn

from glassformer import Transformer
from glassformer.nn.block import Residual, StochasticDepth, drop_chance
from specimens import close, config, normal, tokens


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
    out = StochasticDepth(p)(torch.ones(n, 2, 3))
    dropped = (out == 0).flatten(1)
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
    made = Transformer(config(stochastic_depth=0.9)).eval()
    given = {"tokens": tokens(2, 6), "source": tokens(2, 5)}
    state = torch.get_rng_state()
    assert torch.equal(made(**given), made(**given))
    assert torch.equal(torch.get_rng_state(), state)


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
