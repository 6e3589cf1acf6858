"""Dropout in C++ is that of torch's steps with the same coins, in value and gradient, with a sum or without."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.nn import native
from glassformer.nn.dropout import Dropout, toss
from glassformer.nn.trained import native_dropout
from glassformer.nn.trained.native_dropout import Coins
from specimens import normal

pytestmark = pytest.mark.skipif(not native.has_cpp(native_dropout.SOURCE), reason="needs a C++ compiler")

SHAPES = [(1,), (7,), (2, 8), (3, 17), (2, 3, 5), (40_000,)]


def found(x, onto, upstream):
    """Result and gradients, by the coins of one seed."""
    torch.manual_seed(3)
    y = Dropout(0.3)(x, onto)
    wanted = [x] if onto is None else [x, onto]
    return y.detach(), *torch.autograd.grad(y, wanted, upstream)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_what_torch_computes(monkeypatch, shape, adds):
    x, onto = normal(*shape), normal(*shape) if adds else None
    assert native_dropout.serves(x, onto)
    upstream = torch.randn_like(x)
    ours = found(x, onto, upstream)
    monkeypatch.setattr(native_dropout, "has_cpp", lambda source: False)
    for one, other in zip(ours, found(x, onto, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("adds", [False, True])
def test_bfloat16_is_rounded_once_or_not_at_all(adds):
    x, onto = torch.randn(3, 50).bfloat16().requires_grad_(), torch.randn(3, 50).requires_grad_() if adds else None
    result = torch.float32 if adds else torch.bfloat16
    upstream = torch.randn(3, 50).to(result)
    y, of_x, *of_onto = found(x, onto, upstream)
    torch.manual_seed(3)
    coins = toss(x.shape, 0.3)
    factors = (coins.words >= coins.zeros) * coins.factor
    whole = x.detach().double() * factors + (0 if onto is None else onto.detach().double())
    assert (y.dtype, of_x.dtype) == (result, torch.bfloat16)
    torch.testing.assert_close(
        y.double(), whole.to(result).double(), rtol=1e-6 if adds else 0, atol=1e-6 if adds else 0
    )
    assert torch.equal(of_x, (upstream.double() * factors).bfloat16())
    assert all(torch.equal(each, upstream) for each in of_onto)


def test_halves_are_rounded_to_even_and_nan_stays():
    """Into bfloat16, whose last digit here is 2^-7: from float32, by a dropout that drops nothing."""
    coins = Coins(torch.zeros(5, dtype=torch.int16), 0, 1.0)
    x = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, float("nan"), float("inf")])
    nan_that_overflows = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    for given in (x, torch.cat([nan_that_overflows, x[1:]])):
        y = torch.empty(5, dtype=torch.bfloat16)
        native_dropout.call(given, None, y, coins)
        assert torch.equal(y.nan_to_num(7), given.bfloat16().nan_to_num(7))


def test_the_number_of_threads_changes_no_bit(threads):
    x, onto = torch.randn(70_001).requires_grad_(), torch.randn(70_001).requires_grad_()
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        results.append(found(x, onto, torch.ones(70_001)))
    for each in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(each, results[0], strict=True))


def test_its_gradients_have_gradients():
    x, onto, coins = normal(3, 4), normal(3, 4), toss(torch.Size((3, 4)), 0.4)
    assert torch.autograd.gradcheck(lambda *given: native_dropout.drop(*given, coins), (x, onto))
    assert torch.autograd.gradgradcheck(lambda *given: native_dropout.drop(*given, coins), (x, onto))


def test_many_gradients_at_once():
    x, onto, coins = normal(3, 4), normal(3, 4), toss(torch.Size((3, 4)), 0.4)
    y, upstream = native_dropout.drop(x, onto, coins), torch.randn(5, 3, 4, dtype=torch.float64)
    together = torch.autograd.grad(y, (x, onto), upstream, is_grads_batched=True, retain_graph=True)
    for i, one in enumerate(upstream):
        for found_here, alone in zip(together, torch.autograd.grad(y, (x, onto), one, retain_graph=True), strict=True):
            torch.testing.assert_close(found_here[i], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("upstream", [torch.ones(()).double().expand(3, 4), torch.arange(12.0).double().view(4, 3).t()])
def test_gradients_may_lie_in_memory_in_any_way(upstream):
    x, coins = normal(3, 4), toss(torch.Size((3, 4)), 0.4)
    y = native_dropout.drop(x, None, coins)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    assert torch.equal(gradient, upstream * (coins.words >= coins.zeros) * coins.factor)


def test_functions_of_torch_may_map_it():
    x = normal(5, 3).detach()
    y = torch.func.vmap(Dropout(0.5), randomness="same")(x)
    assert torch.equal(y == 0, (y[:1] == 0).expand(5, 3))


def test_what_it_leaves_to_others(monkeypatch):
    x, serves = torch.randn(4, 6), native_dropout.serves
    assert serves(x, None)
    assert serves(x.bfloat16(), x)
    assert not serves(x.half(), None)
    assert not serves(x.t(), None)
    assert not serves(x[:0], None)
    assert not serves(x, x.double())
    assert not serves(x, x.bfloat16())
    assert not serves(x, x[:1])
    assert not serves(x, torch.randn(6, 4).t())
    assert not serves(x.to("meta"), None)
    assert not serves(torch._neg_view(x), None)
    with TorchDispatchMode():
        assert not serves(x, None)
    monkeypatch.setattr(native_dropout, "has_cpp", lambda source: False)
    assert not serves(x, None)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("training", [True, False])
def test_a_sum_is_the_sum_of_what_is_left(p, training):
    dropout, x, onto = Dropout(p).train(training), normal(2, 5), normal(5)
    torch.manual_seed(1)
    y = dropout(x, onto)
    torch.manual_seed(1)
    assert torch.equal(y, onto + dropout(x))
