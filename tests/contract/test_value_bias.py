"""What is added to the values pair by pair is mixed by the weights that a backend uses; who hides them refuses."""

import itertools

import pytest
import torch

from glassformer import ATTEND, Mask
from glassformer.base.contradictions import SHOWS_WEIGHTS
from glassformer.base.errors import ConfigError
from glassformer.nn.mask import ValueBias
from specimens import close, normal

B, H, T, S, K, R = 3, 4, 5, 7, 6, 3
EVERY = [(rule, name) for rule in ATTEND for name in ATTEND[rule]]
SHOWING = [(rule, name) for rule, name in EVERY if rule != "linear" and name in SHOWS_WEIGHTS]
KEEP = torch.rand(B, S, generator=torch.Generator().manual_seed(1)) < 0.6
KEEP[-1] = False
MASKS = {
    "open": {},
    "causal": {"causal": True},
    "keep": {"keep": KEEP},
    "bias": {"window": 3, "bias": torch.randn(B, H, T, S, generator=torch.Generator().manual_seed(2)).double()},
    "ragged": {"causal": True, "query_positions": torch.arange(B * T).view(B, T) % 6,
               "key_positions": torch.arange(B * S).view(B, S) % 8 - 1},
}  # fmt: skip
masks = pytest.mark.parametrize("rules", MASKS.values(), ids=MASKS)


def problem(G, index_of_each_row):
    """q, k, v, and what is added: a table that learns, and a row of it for each pair."""
    index = torch.randint(R, (B, T, S) if index_of_each_row else (T, S))
    return [normal(B, H, T, K), normal(B, G, S, K), normal(B, G, S, K)], ValueBias(normal(R, K), index)


@masks
@pytest.mark.parametrize(("rule", "backend"), SHOWING)
def test_each_pair_adds_its_row(rule, backend, rules):
    """The weights are what the rule's reference answers to the identity; with them, each pair's vector is summed."""
    attend = ATTEND[rule][backend]
    for G, of_each_row in itertools.product((4, 2, 1), (True, False)):
        inputs, added = problem(G, of_each_row)
        q, k, v = inputs
        ours = attend(q, k, v, Mask(**rules, value_bias=added), scale=0.7)
        wide = [torch.cat([each, torch.zeros(*each.shape[:3], S - K).double()], -1) for each in (q, k)]
        identity = torch.eye(S).double().expand(B, G, S, S)
        weights = ATTEND[rule]["reference"](*wide, identity, Mask(**rules), scale=0.7)
        pairs = added.table[added.index]  # [T, S, K] or [B, T, S, K]
        pairs = pairs[:, None] if of_each_row else pairs
        theirs = weights @ v.repeat_interleave(H // G, 1) + (weights[..., None] * pairs).sum(-2)
        close(ours, theirs, (G, of_each_row))
        ones = torch.linspace(-1, 2, ours.numel()).double().view_as(ours)
        learned = [*inputs, added.table]
        slopes = [torch.autograd.grad((each * ones).sum(), learned, retain_graph=True) for each in (ours, theirs)]
        for name, first, second in zip("qkvt", *slopes, strict=True):
            close(first, second, (name, G, of_each_row), 1e-11)
        if "keep" in rules:
            assert (ours[-1] == 0.0).all(), "a query that may read nothing gets zeros"


@pytest.mark.parametrize(("rule", "backend"), [pair for pair in EVERY if pair not in SHOWING])
def test_who_hides_the_weights_refuses(rule, backend):
    inputs, added = problem(4, False)
    for rules in MASKS.values():
        with pytest.raises(ConfigError, match="value bias"):
            ATTEND[rule][backend](*inputs, Mask(**rules, value_bias=added), scale=0.7)


@pytest.mark.parametrize(("rule", "backend"), SHOWING)
def test_dropout_takes_the_same_weights_from_both(rule, backend):
    """With v of zeros and a table of ones the answer is the sum of what weights are left: that of v of ones."""
    (q, k, v), added = problem(4, False)
    ones, none = torch.ones_like(v), ValueBias(torch.zeros_like(added.table), added.index)
    both = ValueBias(torch.ones_like(added.table), added.index)
    answers = []
    for values, mask in ((ones, Mask(value_bias=none)), (0 * ones, Mask(value_bias=both))):
        torch.manual_seed(3)
        answers.append(ATTEND[rule][backend](q, k, values, mask, scale=0.7, dropout=0.4))
    close(*answers)
    assert answers[0].std() > 0.1
