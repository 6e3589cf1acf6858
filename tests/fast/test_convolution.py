"""Short convolutions in C++ for training are those of torch's steps, in value and gradient."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.fast import convolution as native_convolution
from glassformer.fast import for_training, native
from glassformer.nn.block import Nearby
from glassformer.nn.convolution import ShortConvolution, by_shifts
from specimens import normal

pytestmark = pytest.mark.skipif(not native.has_cpp(native_convolution.SOURCE), reason="needs a C++ compiler")

PIECE = native_convolution.PIECE
SIZES = {
    "one token": (2, 1, 4, 1),
    "fewer tokens than it reads": (2, 2, 3, 4),
    "one piece": (3, 9, 8, 2),
    "beyond a vector": (2, 5, 33, 3),
    "to the end of a piece": (2, PIECE, 16, 1),
    "several pieces": (2, 2 * PIECE + 3, 20, 3),
}
"""Texts, tokens, numbers of each, taps."""
REAL = {
    "all": lambda B, T, N: None,
    "of each text": lambda B, T, N: torch.rand(N, B, T) > 0.4,
    "of all texts": lambda B, T, N: torch.rand(N, 1, T) > 0.4,
    "without texts": lambda B, T, N: torch.rand(N, T) > 0.4,
}
ours = native_convolution.convolve


def found(compute, x, weight, real, upstream):
    """Result and gradients."""
    y = compute(x, weight, real)
    return y.detach(), *torch.autograd.grad(y, (x, weight), upstream)


@pytest.mark.parametrize("which", REAL)
@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_torch_computes(size, which):
    B, T, D, N = SIZES[size]
    torch.manual_seed(T)
    x, weight, real = normal(B, T, D), normal(N, D), REAL[which](B, T, N)
    assert native_convolution.serves(x, weight, real)
    results = (found(each, x, weight, real, torch.ones(B, T, D).cumsum(1).double()) for each in (ours, by_shifts))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_rounded_once():
    torch.manual_seed(0)
    x, weight, upstream = torch.randn(2, 40, 24).bfloat16(), torch.randn(3, 24), torch.randn(2, 40, 24).bfloat16()
    wide = found(by_shifts, x.double().requires_grad_(), weight.double().requires_grad_(), None, upstream.double())
    narrow = found(ours, x.requires_grad_(), weight.requires_grad_(), None, upstream)
    assert [each.dtype for each in narrow] == [torch.bfloat16, torch.bfloat16, torch.float32]
    for one, other, near in zip(narrow, wide, (2**-8, 2**-8, 1e-5), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=near, atol=1e-5)


def test_the_number_of_threads_changes_no_bit(threads):
    x, weight = (each.detach().float().requires_grad_() for each in (normal(3, 70, 12), normal(2, 12)))
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        results.append(found(ours, x, weight, None, torch.ones_like(x)))
    for each in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(each, results[0], strict=True))


def test_its_gradients_have_gradients():
    x, weight, real = normal(2, 5, 3), normal(2, 3), torch.rand(2, 2, 5) > 0.3
    assert torch.autograd.gradcheck(lambda *given: ours(*given, real), (x, weight))
    assert torch.autograd.gradgradcheck(lambda *given: ours(*given, real), (x, weight))


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_what_is_frozen_gets_none(frozen):
    given = {"x": normal(2, 5, 3), "weight": normal(2, 3)}
    given[frozen].requires_grad_(False)
    (learned,) = (each for each in given.values() if each.requires_grad)
    (plain,) = torch.autograd.grad(by_shifts(*given.values(), None).square().sum(), learned)
    for again in (False, True):
        (gradient,) = torch.autograd.grad(ours(*given.values(), None).square().sum(), learned, create_graph=again)
        torch.testing.assert_close(gradient, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "upstream",
    [torch.ones(()).double().expand(2, 5, 3), torch.arange(30.0).double().view(3, 5, 2).permute(2, 1, 0)],
)
def test_gradients_may_lie_in_memory_in_any_way(upstream):
    x, weight = normal(2, 5, 3).detach().mT.contiguous().mT.requires_grad_(), normal(2, 3)
    results = (found(each, x, weight, None, upstream) for each in (ours, by_shifts))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.fixture
def calls(monkeypatch):
    """What was left to C++."""
    seen = []
    given = native_convolution.convolve
    monkeypatch.setattr(native_convolution, "convolve", lambda *args: seen.append(args) or given(*args))
    return seen


def test_training_leaves_it_to_cpp_and_nothing_else_does(calls):
    made, x = ShortConvolution(3, 4).double(), normal(2, 6, 4)
    for_training(made)
    made(x)
    made(x, Nearby(None, torch.ones(2, 2, 6, dtype=torch.bool)))
    assert len(calls) == 2
    made(x, Nearby(torch.zeros(2, 6, dtype=torch.long), None))
    made.eval()(x)
    assert len(calls) == 2


def test_what_it_leaves_to_others():
    x, weight = normal(2, 5, 3), normal(2, 3)
    serves = native_convolution.serves
    assert serves(x, weight, None)
    assert not serves(x.half(), weight.half(), None)
    assert not serves(x.bfloat16(), weight.bfloat16(), None)
    assert not serves(x.float(), weight, None)
    assert not serves(x[:, :0], weight, None)
    assert not serves(x, weight[:, :1], None)
    assert not serves(x, weight, torch.ones(2, 3, 5, dtype=torch.bool))
    assert not serves(x, weight, torch.ones(1, 2, 5, dtype=torch.bool))
    assert not serves(x, weight, torch.ones(2, 2, 5, dtype=torch.uint8))
    assert not serves(x.to("meta"), weight.to("meta"), None)
    assert not serves(x.detach(), weight.detach(), None)
    with torch.no_grad():
        assert not serves(x, weight, None)
    with TorchDispatchMode():
        assert not serves(x, weight, None)
