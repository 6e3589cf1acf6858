"""A map of 8-bit weights: what is rounded, by how much, and what is not."""

from __future__ import annotations

import pytest
import torch

from glassformer.foundation.errors import DataError
from glassformer.parts.int8 import Int8Linear, round_to_int8

SIZES = [(1, 1), (5, 3), (16, 32), (33, 40), (65, 384), (768, 96)]


@pytest.mark.parametrize(("N", "D"), SIZES)
def test_weights_are_rounded_to_half_a_step(N, D):
    weight = torch.randn(N, D)
    whole, scale = round_to_int8(weight)
    assert whole.dtype == torch.int8
    error = (whole.double() * scale.double()[:, None] - weight).abs()
    assert (error <= scale.double()[:, None] * (0.5 + 1e-4)).all()
    assert (whole.abs().amax(1) == 127).all(), "each row has its own step: its largest weight is the last number"


def test_a_row_of_zeros_stays_zero():
    whole, scale = round_to_int8(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert whole.tolist() == [[0, 0], [64, -127]]
    assert scale[0] == 1.0
    assert Int8Linear(torch.zeros(3, 2))(torch.ones(1, 2)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 4, 33])
@pytest.mark.parametrize(("N", "D"), SIZES)
def test_the_product_is_that_of_the_rounded_weights(N, D, rows, dtype):
    """In float64 with Q * scale; what is left is the rounding of the sum in the dtype of x."""
    made = Int8Linear(torch.randn(N, D), torch.randn(N), dtype)
    x = torch.randn(2, rows, D).to(dtype)
    weight = (made.weight.double() * made.scale.double()[:, None])[:, :D]
    expected = x.double() @ weight.T + made.bias.double()
    most = x.double().abs() @ weight.abs().T + made.bias.double().abs()
    found = made(x)
    assert found.dtype == dtype
    assert found.shape == (2, rows, N)
    assert ((found.double() - expected).abs() <= 3 * torch.finfo(dtype).eps * most + D * 1.2e-7 * most).all()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number):
    with pytest.raises(DataError, match="Only finite weights can be written in 8 bits"):
        round_to_int8(torch.tensor([[1.0, number]]))
