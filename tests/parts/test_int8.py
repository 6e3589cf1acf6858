"""A map in whole numbers: what is rounded, by how much, what is exact, and what hangs on nothing else."""

from __future__ import annotations

import pytest
import torch

from glassformer.foundation.errors import DataError
from glassformer.parts.eight_bits import rounded
from glassformer.parts.int8 import Int8Linear
from specimens import multiplies_int8

SIZES = [(1, 1), (5, 3), (16, 32), (33, 40), (65, 384), (768, 96)]
sizes = pytest.mark.parametrize(("N", "D"), SIZES)


@multiplies_int8
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 33])
@sizes
def test_the_product_of_rounded_numbers_is_exact(N, D, rows, biased):
    """In float64 with whole numbers and steps; what is left are three roundings to float32."""
    weight, bias = torch.randn(N, D), torch.randn(N) if biased else None
    made, x = Int8Linear(weight, bias), torch.randn(2, rows, D)
    (p, step_x), (q, step_w) = (tuple(each.double() for each in rounded(rows)) for rows in (x.flatten(0, 1), weight))
    product = (p @ q.T) * step_x * step_w.T
    expected = (product if bias is None else product + bias).view(2, rows, N)
    found = made(x)
    assert found.dtype == torch.float32
    size = product.abs().view(2, rows, N) + expected.abs()
    assert ((found - expected).abs() <= 4 * 2**-24 * size).all()


@multiplies_int8
def test_an_answer_is_in_the_dtype_of_the_question():
    made, x = Int8Linear(torch.randn(5, 48)), torch.randn(3, 48).bfloat16()
    assert torch.equal(made(x), made(x.float()).bfloat16())


@multiplies_int8
def test_what_a_position_gets_hangs_on_no_other():
    """To the last bit: sums of whole numbers have no order."""
    made, x = Int8Linear(torch.randn(65, 384), torch.randn(65)), torch.randn(70, 384)
    x[5] *= 1e4
    whole = made(x)
    for rows in (slice(0, 1), slice(5, 7), slice(3, 36)):
        assert torch.equal(made(x[rows]), whole[rows])


@multiplies_int8
def test_zeros_and_numbers_that_are_none():
    made = Int8Linear(torch.zeros(3, 2), torch.ones(3))
    assert made(torch.ones(1, 2)).tolist() == [[1.0, 1.0, 1.0]]
    made = Int8Linear(torch.ones(3, 2))
    assert made(torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]
    x = torch.tensor([[1.0, 2.0], [1.0, float("nan")], [1.0, float("inf")]])
    found = made(x)
    assert found[0].isfinite().all()
    assert not found[1:].isfinite().any(), "a step that is no number is seen in the answer"


@multiplies_int8
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number):
    with pytest.raises(DataError, match="Only finite weights can be stored in 8 bits"):
        Int8Linear(torch.tensor([[1.0, number]]))
