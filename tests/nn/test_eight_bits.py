"""Numbers in 8 bits: how far they are rounded, by which step, and what becomes of zeros and of what is no number."""

import pytest
import torch

from glassformer.nn.compact_cache import rounded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (65, 384), (3, 2, 5, 8)], ids=str)
def test_a_number_is_rounded_by_half_a_step_and_a_step_is_that_of_its_vector(shape, dtype):
    x = (torch.randn(shape) * torch.logspace(-3, 3, shape[-2])[:, None]).to(dtype)
    whole, step = rounded(x)
    assert (whole.dtype, step.dtype, step.shape) == (torch.int8, torch.float32, (*shape[:-1], 1))
    assert ((whole.double() * step.double() - x).abs() <= step.double() * (0.5 + 1e-4)).all()
    assert (whole.abs().amax(-1) == 127).all(), "the largest number of a vector is the last"
    torch.testing.assert_close(step[..., 0], x.abs().amax(-1).float() / 127)


def test_zeros_stay_zeros():
    whole, step = rounded(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert whole.tolist() == [[0, 0], [64, -127]]
    assert (step > 0).all(), "nothing is divided by zero, whatever this processor makes of it"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_seen_in_its_product_and_in_no_other(number):
    whole, step = rounded(torch.tensor([[1.0, 2.0], [1.0, number]]))
    product = whole * step
    assert product[0].isfinite().all()
    assert not product[1].isfinite().any()
