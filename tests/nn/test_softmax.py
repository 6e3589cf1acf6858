"""Short rows give what torch's softmax gives: in value, gradient and second gradient, masked and in narrow numbers."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from glassformer.nn.backends import SHORT, softmax

LENGTHS = (1, 2, 15, 16, 17, SHORT, SHORT + 1, 70)


def scores(S: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Rows of every temper: flat, sharp, far from zero; from three keys on, a row that may read the first key alone."""
    torch.manual_seed(S)
    rows = torch.randn(6, S, dtype=torch.float64) * torch.tensor([[0.0], [1], [9], [80], [1], [1]], dtype=torch.float64)
    rows[4] += 1e4
    if S > 2:
        rows[5, 1:] = -torch.inf
    return rows.to(dtype).requires_grad_()


@pytest.mark.parametrize("S", LENGTHS)
def test_equals_torch(S):
    x = scores(S)
    upstream = torch.randn(6, S, dtype=torch.float64)
    given, wanted = softmax(x), x.softmax(-1)
    torch.testing.assert_close(given, wanted, rtol=1e-12, atol=1e-15)
    for a, b in zip(*(torch.autograd.grad(y, x, upstream) for y in (given, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("S", [5, SHORT + 1])
def test_can_be_differentiated_twice(S):
    x = torch.randn(2, S, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(softmax, x)


@pytest.mark.parametrize("S", LENGTHS)
def test_narrow_numbers_are_summed_in_float32(S):
    x = scores(S, torch.bfloat16)
    given = softmax(x)
    assert given.dtype == torch.bfloat16
    torch.testing.assert_close(given.double(), x.double().softmax(-1), rtol=2**-8, atol=1e-30)


def test_the_scores_are_left_as_they_were():
    x = torch.randn(3, 4)
    before = x.clone()
    softmax(x)
    assert x.equal(before)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch uses it to differentiate forwards
@pytest.mark.parametrize("S", LENGTHS)
def test_functions_of_torch_and_forward_mode_follow_it(S):
    x = scores(S, torch.float64).detach()

    def total(x):
        return softmax(x).square().sum()

    expected = torch.autograd.grad(total(x.requires_grad_()), x)[0]
    x = x.detach()
    torch.testing.assert_close(torch.func.grad(total)(x), expected)
    with forward_ad.dual_level():
        tangent = torch.ones_like(x)
        rise = forward_ad.unpack_dual(total(forward_ad.make_dual(x, tangent))).tangent
    torch.testing.assert_close(rise, expected.sum())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_narrow_numbers_are_as_exact_as_torch_computes_them(dtype):
    """Gradients with a large mean, which the subtraction removes: rounded before, little would be left."""
    torch.manual_seed(1)
    x, upstream = torch.randn(64, SHORT, dtype=torch.float64), torch.randn(64, SHORT, dtype=torch.float64) + 8
    exact, errors = x.clone().requires_grad_(), list[Tensor]()
    (wanted,) = torch.autograd.grad(exact.softmax(-1), exact, upstream)
    for way in (softmax, lambda y: y.softmax(-1)):
        narrow = x.to(dtype).requires_grad_()
        (found,) = torch.autograd.grad(way(narrow), narrow, upstream.to(dtype))
        errors.append((found.double() - wanted).norm() / wanted.norm())
    assert errors[0] <= 1.05 * errors[1]
