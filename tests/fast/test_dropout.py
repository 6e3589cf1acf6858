"""Dropout: the share of zeros, the mean, the coins from a seed, the gradient, and nothing at all in evaluation."""

import numpy as np
import pytest
import torch

from glassformer import Transformer
from glassformer.fast.dropout import FastDropout as Dropout
from glassformer.fast.dropout import toss
from specimens import config, normal, tokens

N = 400_000


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 1 / 65_536 * 20_000])
def test_share_of_zeros_and_mean(p):
    out = Dropout(p)(torch.ones(N))
    spread = (p * (1 - p) / N) ** 0.5
    assert abs((out == 0).float().mean() - p) < 5 * spread
    assert abs(out.double().mean() - 1) < 5 * spread / (1 - p)
    kept = 1 - round(p * 65_536) / 65_536
    assert (out[out != 0] == torch.tensor(1.0) * (1 / kept)).all()


def test_the_chance_is_exact_over_all_words(monkeypatch):
    """Each of the 65,536 words once: exactly p of them fall as zero, for every p that is a multiple of 1/65,536."""

    class EveryWord:
        def __init__(self, seed):
            pass

        def random_raw(self, n):
            return np.arange(65_536, dtype=np.uint16).view(np.uint64)[:n]

    monkeypatch.setattr(np.random, "SFC64", EveryWord)
    for zeros in (0, 1, 6_554, 32_767, 32_768, 32_769, 65_535):
        words, least = toss(torch.Size([65_536]), zeros / 65_536)
        assert (words < least).sum() == zeros


def test_places_and_calls_are_independent():
    """Of two neighbours, and of one place in two calls, both fall as zero with chance p * p."""
    p, dropout = 0.3, Dropout(0.3)
    first, second = (dropout(torch.ones(N // 4, 4)) == 0 for _ in range(2))
    for one, two in ((first[:, :-1], first[:, 1:]), (first, second), (first[:-1], first[1:])):
        assert abs((one & two).double().mean() - p * p) < 5 * (p * p * (1 - p * p) / one.numel()) ** 0.5


def test_a_seed_gives_the_same_coins():
    dropout, x = Dropout(0.5), torch.ones(3, 5, 7)
    torch.manual_seed(4)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(4)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0, 4), (2, 3, 5, 7)])
def test_any_shape(shape):
    assert Dropout(0.4)(torch.ones(shape)).shape == shape


def test_gradient_is_the_mask():
    x = normal(50, 20)
    out = Dropout(0.25)(x)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert torch.equal(gradient, (out != 0).double() * (1 / 0.75))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_dtype_stays(dtype):
    assert Dropout(0.5)(torch.ones(9, dtype=dtype)).dtype == dtype


def test_what_is_not_finite_stays_so():
    out = Dropout(0.5)(torch.full((100,), float("inf")))
    assert (out.isnan() | out.isinf()).all()


@pytest.mark.parametrize("p", [0.0, 0.7])
def test_nothing_in_evaluation_or_without_chance(p):
    x = torch.randn(5)
    assert Dropout(p).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(1e-9)(x).eq(x).all()


def test_nearly_everything_may_be_dropped():
    """p may come as near to 1 as a float does; the coins have 65,536 sides, and one of them stays."""
    out = Dropout(1 - 1e-9)(torch.ones(N))
    assert out.isfinite().all()
    assert (out == 0).float().mean() > 0.999


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "feed_forward_dropout"])
def test_each_setting_reaches_its_place(name):
    """In training two forwards differ, in evaluation they do not; a seed repeats them."""
    made = Transformer(config(**{name: 0.5}))
    given = {"tokens": tokens(2, 6), "source": tokens(2, 5)}
    torch.manual_seed(1)
    first, second = made(**given), made(**given)
    torch.manual_seed(1)
    assert torch.equal(made(**given), first)
    assert not torch.equal(first, second)
    made.eval()
    assert torch.equal(made(**given), made(**given))
