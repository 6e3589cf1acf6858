"""Maps in C++: the product of their weights, in whatever order they lie, and of nothing else in memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glassformer.parts import native
from glassformer.parts.native import c_map, in_pieces, product
from glassformer.parts.native_linear import NativeLinear
from glassformer.parts.opaque import native_product
from specimens import native_cpp

pytestmark = native_cpp
SIZES = [(1, 1), (5, 3), (16, 32), (33, 40), (65, 384), (768, 96), (300, 401), (3, 9000)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 33, native.FEW + 1])
@pytest.mark.parametrize(("N", "D"), SIZES)
def test_the_product_is_that_of_the_weights_in_their_dtype(N, D, rows, biased, dtype):
    """Sums in float32, of weights in their own dtype."""
    weight, bias, x = torch.randn(N, D).to(dtype), torch.randn(N) if biased else None, torch.randn(1, rows, D)
    wide = [None if each is None else each.double() for each in (weight, bias)]
    expected = F.linear(x.double(), *wide)
    size = F.linear(x.double().abs(), *(None if each is None else each.abs() for each in wide))
    found = NativeLinear(weight, bias)(x)
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= 2**-21 * size).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_alone_and_beside_others(dtype):
    made, x = NativeLinear(torch.randn(65, 384).to(dtype), torch.randn(65)), torch.randn(70, 384)
    whole = made(x)
    for rows in (slice(0, 1), slice(5, 7), slice(3, 36)):
        assert torch.equal(made(x[rows]), whole[rows])
    assert torch.equal(native_product(x, made.weight, None, made.bias, 65), whole), "as compiled code calls it"
    assert torch.equal(made(x.T.contiguous().T), whole), "wherever the rows lie"


def test_weights_in_float32_are_not_copied():
    weight = torch.nn.Parameter(torch.randn(8, 16))
    made = NativeLinear(weight)
    assert made.weight is weight
    with torch.no_grad():
        weight.zero_()
    assert not made(torch.randn(2, 16)).any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
def test_pieces_are_four_rows_of_sixteen_bytes(dtype):
    whole, numbers = torch.arange(5 * 18).view(5, 18).to(dtype), 16 // dtype.itemsize
    pieces = in_pieces(whole)
    assert pieces.shape == (2, -(-18 // numbers), 4, numbers)
    for n in range(8):
        for d in range(pieces.shape[1] * numbers):
            expected = whole[n, d] if n < 5 and d < 18 else 0
            assert pieces[n // 4, d // numbers, n % 4, d % numbers] == expected


@pytest.mark.parametrize("x", [torch.ones(1, 16).double(), torch.ones(1, 16, device="meta")], ids=["float64", "meta"])
def test_other_numbers_are_refused(x):
    with pytest.raises(ValueError, match=r"reads float32 on a CPU; got torch\.float"):
        product(x, torch.ones(8, 16), None, None, 8)


@pytest.mark.parametrize(
    ("weight", "step", "D", "N"),
    [
        (torch.ones(8, 16), None, 17, 8),
        (torch.ones(8, 16), None, 16, 9),
        (torch.ones(16, 8).T, None, 16, 8),
        (in_pieces(torch.ones(8, 16).bfloat16()), None, 17, 8),
        (in_pieces(torch.ones(8, 16).to(torch.int8)), torch.ones(8), 17, 8),
        (in_pieces(torch.ones(8, 16).to(torch.int8)), torch.ones(8), 16, 9),
        (in_pieces(torch.ones(8, 16).to(torch.int8)), torch.ones(16)[::2], 16, 8),
        (in_pieces(torch.ones(8, 16).to(torch.int8)), torch.ones(7), 16, 8),
        (in_pieces(torch.ones(8, 16).to(torch.int8)), None, 16, 8),
    ],
    ids=["wide", "high", "turned", "wide bfloat16", "wide int8", "high int8", "steps apart", "few steps", "no steps"],
)
def test_no_memory_is_read_that_is_not_there(weight, step, D, N):
    with pytest.raises(ValueError, match=rf"A map from {D} numbers to {N} needs"):
        c_map(weight, step, None, D, N)


def test_a_bias_of_another_size_is_refused():
    with pytest.raises(ValueError, match="A map from 16 numbers to 8 needs"):
        c_map(torch.ones(8, 16), None, torch.ones(7), 16, 8)
