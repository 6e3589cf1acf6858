"""The most likely tokens and the sum over the vocabulary: in C++ what torch finds."""

import pytest
import torch

from glassformer.base.errors import DataError
from glassformer.decode.beam import check_summed, likeliest, scored
from glassformer.decode.filters import Context
from glassformer.fast import native as native_likely
from glassformer.fast.decoding import KERNELS
from specimens import native_cpp

pytestmark = native_cpp


def logits(rows, V, spread=3.0):
    """Numbers of which many are equal, some very small, and some forbidden."""
    drawn = (torch.randn(rows, V) * spread * 4).round() / 4
    drawn[torch.rand(rows, V) < 0.2] = -torch.inf
    drawn[:, V // 2] = 0.25
    return drawn


@pytest.mark.parametrize("V", [1, 5, 63, 64, 65, 200, 1003])
@pytest.mark.parametrize("k", [1, 2, 8, 100])
def test_the_largest_come_first_and_of_equals_the_lowest_id(V, k):
    z, k = logits(7, V), min(k, V)
    values, ids = native_likely.largest(z, k)
    expected = z.double().sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(ids, expected.indices[:, :k])


@pytest.mark.parametrize("V", [1, 5, 64, 1003, 8000])
@pytest.mark.parametrize("spread", [0.01, 3.0, 40.0])
def test_sums_are_those_of_torch(V, spread):
    z = logits(5, V, spread)
    torch.testing.assert_close(native_likely.log_sums(z)[:, 0], z.double().logsumexp(-1), rtol=2e-6, atol=2e-6)


def test_what_is_all_forbidden_has_no_sum_and_every_id_once():
    z = torch.full((2, 70), -torch.inf)
    assert native_likely.log_sums(z).isneginf().all()
    assert native_likely.largest(z, 3)[1].tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("others", ["numbers", "forbidden"])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 17, 79, 82])
def test_the_sum_of_what_is_no_number_is_none(others, wrong, place):
    """Wherever it stands, also as the only one that is not forbidden; rows beside it have theirs."""
    z = logits(3, 83) if others == "numbers" else torch.full((3, 83), -torch.inf)
    z[1, place] = wrong
    assert native_likely.log_sums(z).isnan()[:, 0].tolist() == [False, True, False]
    context = Context([4, 5, 6], [[7]] * 3, [[]] * 3)
    with pytest.raises(DataError, match=r"(NaN\)|infinite) in row 5 "):
        check_summed(scored(z), z, context)
    forbidden = torch.full_like(z, -torch.inf)
    check_summed(scored(forbidden, kernels=KERNELS), forbidden, context)


def test_rows_that_lie_apart_and_many_on_any_number_of_threads():
    z = logits(300, 999)[:, 100:600]
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append([native_likely.log_sums(z), *native_likely.largest(z, 5)])
    torch.set_num_threads(before)
    expected = [native_likely.log_sums(z.contiguous()), *native_likely.largest(z.contiguous(), 5)]
    for each in found:
        assert all(map(torch.equal, each, expected))


@pytest.mark.parametrize("change", [torch.Tensor.double, torch.Tensor.bfloat16, lambda z: z.t()])
def test_other_numbers_are_left_to_torch(change):
    """Also those that do not lie row by row."""
    assert native_likely.can_look_at(logits(70, 70))
    assert not native_likely.can_look_at(change(logits(70, 70)))


def test_gradients_and_very_many_tokens_are_left_to_torch():
    z = logits(3, 500)
    assert [native_likely.can_look_at(z, k) for k in (0, 1, native_likely.MOST, native_likely.MOST + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert not native_likely.can_look_at(z.requires_grad_())
    with torch.no_grad():
        assert native_likely.can_look_at(z)


def test_a_search_looks_at_what_is_found():
    z = torch.randn(6, 300)
    found = likeliest(scored(z, [3, 4], KERNELS), 9, KERNELS)
    expected = likeliest(scored(z, [3, 4]), 9)
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.log_p, expected.log_p, rtol=0, atol=2e-6)
