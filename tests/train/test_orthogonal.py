"""What Muon's iterations do to singular values, and our C++ against the equations that it follows."""

import pytest
import torch

from glassformer.base.errors import ResourceError
from glassformer.fast import native
from glassformer.fast import orthogonal as module
from glassformer.fast.orthogonal import by_cpp, iterate, serves
from glassformer.train.muon import by_products, orthogonal, scaled

SHAPES = [(5, 5), (3, 8), (8, 3)]
SIDES = [(1, 1), (1, 5), (7, 7), (16, 16), (17, 33), (33, 17), (6, 300), (300, 6), (70, 530), (130, 130)]
"""Below, at and above a tile of a product, and the numbers that it adds up at a time."""

needs_cpp = pytest.mark.skipif(not native.has_cpp(module.SOURCE), reason="needs a C++ compiler")


@pytest.fixture(params=["C++", "products"])
def way(request):
    """How the iterations are computed."""
    if request.param == "C++" and not native.has_cpp(module.SOURCE):
        pytest.skip("needs a C++ compiler")
    return by_products if request.param == "products" else iterate


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
def test_directions_stay_and_singular_values_come_near_one(way, shape, dtype):
    torch.manual_seed(2)
    least = min(shape)
    left, right = (torch.linalg.qr(torch.randn(7, side, side, dtype=torch.float64)).Q[..., :least] for side in shape)
    values = torch.linspace(1.0, 0.3, least, dtype=torch.float64)
    answer = orthogonal((left * values) @ right.mT * 1e3, dtype, way)
    after = left.mT @ answer @ right
    diagonal = torch.diagonal(after, dim1=-2, dim2=-1)
    assert 0.65 < float(diagonal.min()) <= float(diagonal.max()) < 1.25
    assert float((after - torch.diag_embed(diagonal)).abs().max()) < (1e-12 if dtype is None else 0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [2.0**41, 2.0**64, 2.0**100, 2.0**123])
def test_a_gradient_whose_squares_no_float_holds_is_turned_as_any_other(way, size, dtype):
    """To the last bit, as its size is a power of two; beside an ordinary one, which it leaves alone."""
    small = torch.randn(2, 6, 4)
    large = small * torch.tensor([size, 1.0])[:, None, None]
    assert float(orthogonal(small, dtype, way).abs().max()) > 0.1
    assert torch.equal(orthogonal(large, dtype, way), orthogonal(small, dtype, way))


@needs_cpp
@pytest.mark.parametrize("shape", SIDES, ids=str)
def test_cpp_computes_what_the_products_do(shape):
    x = scaled(torch.randn(4, *shape, dtype=torch.float64))
    torch.testing.assert_close(by_cpp(x.clone()), by_products(x), rtol=0, atol=1e-11)
    narrow = by_cpp(x.float())
    torch.testing.assert_close(narrow.double(), by_products(x), rtol=0, atol=2e-3)
    assert float(torch.linalg.matrix_norm(narrow, 2).max()) < 1.25


@needs_cpp
def test_what_has_few_directions_gets_no_others():
    """Noise where a matrix has nothing grows by 485 at the most, in float32 too."""
    x = scaled(torch.randn(3, 40, 2) @ torch.randn(3, 2, 90))
    torch.testing.assert_close(by_cpp(x.clone()), by_products(x.double()).float(), rtol=0, atol=1e-3)


@needs_cpp
@pytest.mark.parametrize("shape", [(40, 24), (24, 40)], ids=str)
def test_a_matrix_gets_the_same_bits_alone_and_beside_others_on_any_number_of_threads(threads, shape):
    x = scaled(torch.randn(5, *shape))
    torch.set_num_threads(3)
    together = by_cpp(x.clone())
    torch.set_num_threads(1)
    for one, expected in zip(x, together, strict=True):
        assert torch.equal(by_cpp(one[None].clone())[0], expected)


@needs_cpp
def test_numbers_that_are_none_stay_seen_and_zeros_stay_zeros():
    x = torch.randn(3, 6, 9)
    x[0, 2, 3], x[1, 5, 8] = torch.nan, torch.inf
    assert orthogonal(x, iterate=iterate).isnan().any((-2, -1)).tolist() == [True, True, False]
    assert torch.equal(orthogonal(torch.zeros(2, 6, 9), iterate=iterate), torch.zeros(2, 6, 9))


@needs_cpp
def test_what_cpp_is_left_out_of(threads):
    x = scaled(torch.randn(3, 6, 9))
    torch.set_num_threads(3)
    assert serves(x)
    assert not serves(x[:2])  # two matrices, three threads
    assert not serves(x.bfloat16())
    assert not serves(x.mT)
    assert not serves(x.to("meta"))


@needs_cpp
def test_too_little_memory_is_told():
    side = 1 << 24
    with pytest.raises(ResourceError, match="no memory for a step of Muon"):
        by_cpp(torch.zeros(1, 1, 1).expand(1, side, side))
