"""Maps in C++: the product of their weights, in whatever order they lie, and of nothing else in memory."""

import copy
import ctypes
import pickle

import pytest
import torch
import torch.nn.functional as F

from glassformer.base.errors import ResourceError
from glassformer.fast import native as native_linear
from glassformer.fast.native import Int8Linear, NativeLinear, c_map, declared, in_pieces, native_product, product
from specimens import native_cpp

pytestmark = native_cpp
SIZES = [(1, 1), (5, 3), (16, 32), (33, 40), (65, 384), (768, 96), (300, 401), (3, 9000)]


@pytest.fixture
def no_hardware(monkeypatch):
    """As if the processor had no instructions for bfloat16, by which many positions would be multiplied."""
    monkeypatch.setattr(native_linear, "has_bfloat16", lambda device: False)


@pytest.mark.usefixtures("no_hardware")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6, 7, 33, 97])
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


def test_sums_of_one_sign_in_bfloat16_are_exact_to_a_few_roundings():
    """As they are summed in parts; one sum of 2,048 numbers would be wrong by 270 halves of a last bit."""
    weight, x = torch.ones(16, 4096).bfloat16(), torch.full((1, 4096), 0.1)
    expected = x.double().sum()
    assert ((NativeLinear(weight)(x) - expected).abs() <= 16 * 2**-24 * expected).all()


@pytest.mark.usefixtures("no_hardware")
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


def test_weights_that_moved_are_read():
    """Also where square ones lie turned in the same place."""
    weight, bias, x = torch.nn.Parameter(torch.randn(8, 8)), torch.nn.Parameter(torch.randn(8)), torch.randn(2, 8)
    made = NativeLinear(weight, bias)

    def agrees():
        torch.testing.assert_close(made(x), F.linear(x, made.weight, made.bias))

    with torch.no_grad():
        agrees()
        weight.data = torch.randn(8, 8)
        agrees()
        made.bias = torch.nn.Parameter(torch.randn(8))
        agrees()
        made.bias = None
        agrees()
        weight.data = weight.data.T
        with pytest.raises(ValueError, match="A map from 8 numbers to 8 needs a contiguous weight"):
            made(x)
        weight.data = weight.data.T
        agrees()
        weight.data = weight.data[:4]
        with pytest.raises(ValueError, match="A map from 8 numbers to 8 needs a contiguous weight"):
            made(x)


def test_weights_in_numbers_that_cpp_does_not_have_are_refused():
    """Also where they lie as the ones before."""
    made, x = NativeLinear(torch.randn(8, 16).bfloat16()), torch.randn(2, 16)
    made(x)
    made.weight = made.weight.view(torch.float16)
    with pytest.raises(ValueError, match=r"A map from 16 numbers to 8 needs .* in torch\.float16"):
        made(x)


def test_steps_that_were_exchanged_are_read():
    made, x = Int8Linear(torch.randn(8, 16)), torch.randn(2, 16)
    found, made.step = made(x), 2 * made.step
    torch.testing.assert_close(made(x), 2 * found)


def test_a_copy_reads_weights_of_its_own():
    made, x = NativeLinear(torch.nn.Parameter(torch.randn(8, 16))), torch.randn(2, 16)
    with torch.no_grad():
        found, other = made(x), copy.deepcopy(made)
        made.weight.zero_()
        assert torch.equal(other(x), found)
        assert torch.equal(pickle.loads(pickle.dumps(other))(x), found)


@pytest.mark.parametrize(("dtype", "columns"), [(torch.int8, 4), (torch.bfloat16, 2)])
def test_pieces_are_four_bytes_of_sixteen_rows(dtype, columns):
    whole = torch.arange(17 * 13).view(17, 13).remainder(101).to(dtype)
    pieces = in_pieces(whole)[:, dtype == torch.int8 :]
    assert pieces.shape == (2, 16 // columns, 16, columns)
    for n in range(32):
        for d in range(16):
            expected = whole[n, d] if n < 17 and d < 13 else 0
            assert pieces[n // 16, d // columns, n % 16, d % columns] == expected


def test_8_bits_are_laid_out_on_a_cpu_only():
    with pytest.raises(ValueError, match="on a CPU; got a weight on meta"):
        in_pieces(torch.zeros(16, 8, dtype=torch.int8, device="meta"))


@pytest.fixture
def hardware(monkeypatch):
    """As if the processor had instructions for bfloat16: what they would be given, and the answer 7."""
    given = []

    class Packed:
        def __init__(self, weight, bias):
            assert weight.dtype == bias.dtype == torch.bfloat16
            self.outputs = len(weight)

        def __call__(self, x):
            given.append(len(x))
            return torch.full((len(x), self.outputs), 7.0).bfloat16()

    monkeypatch.setattr(native_linear, "has_bfloat16", lambda device: True)
    monkeypatch.setattr(native_linear, "can_pack", lambda device: True)
    monkeypatch.setattr(native_linear, "PackedLinear", Packed)
    return given


def test_many_positions_in_bfloat16_are_left_to_hardware_for_it(hardware):
    weight, bias, x = torch.randn(5, 16), torch.randn(5), torch.randn(native_linear.FEW + 1, 16)
    made = NativeLinear(weight.bfloat16(), bias)
    torch.testing.assert_close(made(x[:-1]), F.linear(x[:-1], weight.bfloat16().float(), bias))
    assert hardware == []
    found = made(x)
    assert found.dtype == torch.float32
    assert (found == 7).all()
    assert hardware == [len(x)]
    assert NativeLinear(weight, bias).packed is None, "in float32"


@pytest.mark.parametrize("other", [{"dtype": torch.float64}, {"device": "meta"}], ids=["float64", "meta"])
def test_other_numbers_and_weights_are_refused(other):
    with pytest.raises(ValueError, match=r"reads float32 on a CPU; got torch\.float"):
        product(torch.ones(1, 16, **other), torch.ones(8, 16), None, None, 8)
    with pytest.raises(ValueError, match=r"multiplies float32 on a CPU; got a weight in torch\.float"):
        product(torch.ones(1, 16), torch.ones(8, 16, **other), None, None, 8)


@pytest.mark.parametrize(
    ("weight", "step", "bias", "D", "N"),
    [
        (torch.ones(8, 16), None, None, 17, 8),
        (torch.ones(8, 16), None, None, 16, 9),
        (torch.ones(16, 8).T, None, None, 16, 8),
        (torch.ones(8, 16).bfloat16(), None, None, 17, 8),
        (torch.ones(8, 16).to(torch.int8), torch.ones(8), None, 17, 8),
        (torch.ones(8, 16).to(torch.int8), torch.ones(8), None, 16, 9),
        (torch.ones(8, 16).to(torch.int8), torch.ones(16)[::2], None, 16, 8),
        (torch.ones(8, 16).to(torch.int8), torch.ones(7), None, 16, 8),
        (torch.ones(8, 16).to(torch.int8), None, None, 16, 8),
        (torch.ones(8, 16), None, torch.ones(7), 16, 8),
        (torch.ones(8, 16), None, torch.ones(8).double(), 16, 8),
        (torch.ones(0, 16), None, torch.ones(0), 16, 0),
    ],
    ids=["wide", "high", "turned", "wide bfloat16", "wide int8", "high int8", "steps apart", "few steps", "no steps",
         "a short bias", "a bias in float64", "nothing"],
)  # fmt: skip
def test_no_memory_is_read_that_is_not_there(weight, step, bias, D, N):
    weight = weight if weight.dtype == torch.float32 else in_pieces(weight)  # in C++, so not where it is collected
    with pytest.raises(ValueError, match=rf"A map from {D} numbers to {N} needs"):
        c_map(weight, step, bias, D, N)


def test_what_has_no_room_in_memory_is_told():
    weight, numbers = in_pieces(torch.ones(4, 16, dtype=torch.int8)), torch.ones(4, 16)
    failed = c_map(weight, steps := torch.ones(4), None, 16, 4)
    assert len(steps) == 4, "it is kept as long as its address is used"
    linear_map = declared("linear_map", *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int)
    with pytest.raises(ResourceError, match="There is no memory to run a model's blocks"):
        linear_map(ctypes.byref(failed), numbers.data_ptr(), numbers.data_ptr(), 2**58, 1)


def test_gradients_pass_in_float32():
    weight, x = torch.nn.Parameter(torch.randn(8, 16)), torch.randn(3, 16, requires_grad=True)
    NativeLinear(weight)(x).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, 16))
    torch.testing.assert_close(weight.grad, x.sum(0).expand(8, 16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_positions_of_another_width_are_refused(dtype):
    """25 and 30 numbers fill as many pieces."""
    made = NativeLinear(torch.ones(8, 30, dtype=dtype))
    with torch.no_grad(), pytest.raises(ValueError, match="A map from 30 numbers to 8 got 25 numbers"):
        made(torch.ones(3, 25))
