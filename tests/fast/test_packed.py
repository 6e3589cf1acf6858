"""A map whose weights are packed once: the same answer as torch's own."""

import pytest
import torch
import torch.nn.functional as F

from glassformer.base.runtime import has_bfloat16
from glassformer.fast.native import PackedLinear, can_pack

CPU = torch.device("cpu")
here = pytest.mark.skipif(not can_pack(CPU), reason="torch has no oneDNN here")
narrow = pytest.mark.skipif(not has_bfloat16(CPU), reason="this processor has no bfloat16")
DTYPES = [(torch.float32, 2**-23), pytest.param(torch.bfloat16, 2**-8, marks=narrow)]


@here
@pytest.mark.parametrize(("dtype", "rounding"), DTYPES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 4, 33])
@pytest.mark.parametrize(("N", "D"), [(1, 1), (5, 3), (33, 40), (65, 384), (768, 96)])
def test_the_product_is_that_of_the_weights_in_their_dtype(N, D, rows, biased, dtype, rounding):
    """Sums are in float32 at least, and rounded once."""
    weight, bias = torch.randn(N, D).to(dtype), torch.randn(N).to(dtype) if biased else None
    x = torch.randn(2, rows, D).to(dtype)
    wide = [None if each is None else each.double() for each in (weight, bias)]
    expected = F.linear(x.double(), *wide)
    size = F.linear(x.double().abs(), *(None if each is None else each.abs() for each in wide))
    found = PackedLinear(weight, bias)(x)
    assert found.dtype == dtype
    assert ((found.double() - expected).abs() <= rounding * expected.abs() + 2e-6 * size).all()


@here
def test_positions_may_lie_anywhere_in_memory():
    made, x = PackedLinear(torch.randn(33, 40)), torch.randn(40, 5)
    torch.testing.assert_close(made(x.T), made(x.T.contiguous()), rtol=0, atol=0)


def test_other_devices_are_not_packed_for():
    assert not can_pack(torch.device("meta"))
