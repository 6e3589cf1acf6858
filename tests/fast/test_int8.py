"""A map in whole numbers: what is rounded, by how much, what is exact, and what hangs on nothing else."""

import pickle

import pytest
import torch

from glassformer.base.errors import DataError
from glassformer.fast.native import Int8Linear, in_pieces, product
from glassformer.nn.compact_cache import rounded
from specimens import native_cpp

pytestmark = native_cpp
SIZES = [(1, 1), (5, 3), (16, 32), (33, 40), (65, 384), (768, 96), (300, 401), (3, 9000)]
sizes = pytest.mark.parametrize(("N", "D"), SIZES)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 12, 20, 33])
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


def test_an_answer_is_in_the_dtype_of_the_question():
    made, x = Int8Linear(torch.randn(5, 48)), torch.randn(3, 48).bfloat16()
    assert torch.equal(made(x), made(x.float()).bfloat16())


def test_what_a_position_gets_hangs_on_no_other():
    """To the last bit: sums of whole numbers have no order."""
    made, x = Int8Linear(torch.randn(65, 384), torch.randn(65)), torch.randn(70, 384)
    x[5] *= 1e4
    whole = made(x)
    for rows in (slice(0, 1), slice(5, 7), slice(3, 36)):
        assert torch.equal(made(x[rows]), whole[rows])


def test_a_single_row_is_the_same_on_any_number_of_threads(threads):
    """Each thread rounds it for itself. Large enough for several threads, and often enough for them to meet."""
    made, x = Int8Linear(torch.randn(300, 3000)), torch.randn(2, 3000)
    expected = made(x)[:1]
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        assert all(torch.equal(made(x[:1]), expected) for _ in range(50)), number


def test_zeros_and_numbers_that_are_none():
    made = Int8Linear(torch.zeros(3, 2), torch.ones(3))
    assert made(torch.ones(1, 2)).tolist() == [[1.0, 1.0, 1.0]]
    made = Int8Linear(torch.ones(3, 2))
    assert made(torch.zeros(1, 2)).tolist() == [[0.0, 0.0, 0.0]]
    x = torch.tensor([[1.0, 2.0], [1.0, float("nan")], [1.0, float("inf")]])
    found = made(x)
    assert found[0].isfinite().all()
    assert not found[1:].isfinite().any(), "a step that is no number is seen in the answer"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number):
    with pytest.raises(DataError, match="Only finite weights can be stored in 8 bits"):
        Int8Linear(torch.tensor([[1.0, number]]))


def test_positions_may_lie_anywhere_in_memory():
    made, x = Int8Linear(torch.randn(33, 40)), torch.randn(40, 5)
    assert torch.equal(made(x.T), made(x.T.contiguous()))


@pytest.mark.parametrize("rows", [2, 20])
def test_sums_cannot_overflow(rows):
    """Numbers of one sign, all at the end of the range, as long as a feed-forward layer of 16,384: 2.6e8."""
    made, x = Int8Linear(torch.full((3, 16_384), -1.0)), torch.ones(rows, 16_384)
    assert made(x).tolist() == [[-16_384.0] * 3] * rows


def test_halves_are_rounded_to_even():
    """As `rounded` does it, to the last bit: in vectors, and behind the last of them."""
    whole, step = rounded(torch.eye(19))
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 0.0] * 2 + [0.5, 1.5, -2.5]])
    found = product(x, in_pieces(whole), step[:, 0].contiguous(), torch.zeros(19), 19)
    assert found.tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 126.0, 0.0] * 2 + [0.0, 2.0, -2.0]]


def test_a_bias_may_lie_anywhere_in_memory():
    weight, bias, x = torch.randn(8, 16), torch.randn(16)[::2], torch.randn(3, 16)
    assert torch.equal(Int8Linear(weight, bias)(x), Int8Linear(weight, bias.clone())(x))


def test_a_map_from_another_processor_gets_the_heads_of_this_one():
    made, x = Int8Linear(torch.randn(18, 13)), torch.randn(5, 13)
    expected = made(x)
    made.weight[:, 0] = 7  # what another way to multiply would have there
    assert not torch.allclose(made(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(made))(x), expected)
