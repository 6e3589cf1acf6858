"""A map in bfloat16, laid out once: the same answer as torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glassformer.foundation.runtime import has_bfloat16
from glassformer.parts.packed import PackedLinear

here = pytest.mark.skipif(not has_bfloat16(torch.device("cpu")), reason="this processor has no bfloat16")


@here
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 33])
@pytest.mark.parametrize(("N", "D"), [(1, 1), (5, 3), (33, 40), (65, 384), (768, 96)])
def test_the_product_is_that_of_weights_in_bfloat16(N, D, rows, biased):
    """Sums are in float32 at least, and rounded once."""
    weight, bias, x = torch.randn(N, D), torch.randn(N) if biased else None, torch.randn(2, rows, D).bfloat16()
    narrow = [None if each is None else each.bfloat16().double() for each in (weight, bias)]
    expected = F.linear(x.double(), *narrow)
    size = F.linear(x.double().abs(), *(None if each is None else each.abs() for each in narrow))
    found = PackedLinear(weight, bias)(x)
    assert found.dtype == torch.bfloat16
    assert ((found.double() - expected).abs() <= 2**-8 * expected.abs() + 2e-6 * size).all()
